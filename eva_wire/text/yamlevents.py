"""Reads YAML as events, with limits that hold before anything is made of them.

Aliases are not followed here: what they expand to is counted by whoever follows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from eva_wire.text.cancellation import Cancellation

MOST_NODES = 100_000
"""Keys, values and entries of lists in a file, those that aliases repeat included."""
MOST_DEPTH = 32
_EVENTS_BETWEEN_LOOKS = 1_000
# libyaml is some twenty times faster than the parser in Python.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)


class TooMuchError(Exception):
    """The file is too large or nested too deeply; the message says which."""


@dataclass(slots=True)
class Events:
    """The nodes of a document, each from its first event to its last.

    Attributes:
        list: The events of the document's only node, in order; empty for an empty file.
        after: For each event that begins a node, the place of the first event after the node.
        anchors: Place of the node that an anchor names, the last one of that name.
        aliases: For each alias, the place of the node that it stands for.
    """

    list: list[Any] = field(default_factory=list)
    after: dict[int, int] = field(default_factory=dict)
    anchors: dict[str, int] = field(default_factory=dict)
    aliases: dict[int, int] = field(default_factory=dict)


def read(text: str, cancelled: Cancellation) -> Events:
    """Read the events of a document.

    Args:
        text: The file's content.
        cancelled: Looked at now and then.

    Raises:
        CancelledError: The caller has gone away.
        TooMuchError: The text has too many nodes, or is nested too deeply.
        yaml.YAMLError: The text is not YAML, or more than one document.
    """
    loader = _LOADER(text)
    try:
        return _read(loader, cancelled)
    finally:
        loader.dispose()


def _read(loader: Any, cancelled: Cancellation) -> Events:
    events = Events()
    open_: list[int] = []
    while (event := loader.get_event()) is not None:
        place = len(events.list)
        if place % _EVENTS_BETWEEN_LOOKS == 0:
            cancelled.check()
        match event:
            case yaml.DocumentStartEvent() if events.list:
                raise _refusal("there is more than one document", event)
            case yaml.NodeEvent():
                events.list.append(event)
                _begin(events, event, open_)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                events.list.append(event)
                events.after[open_.pop()] = place + 1
        if len(open_) > MOST_DEPTH:
            raise TooMuchError("nested too deeply")
        if len(events.after) + len(open_) > MOST_NODES:
            raise TooMuchError(f"too large: it has more than {MOST_NODES:,} keys and values")
    return events


def _begin(found: Events, event: Any, open_: list[int]) -> None:
    """Note the node that begins with the last event."""
    place = len(found.list) - 1
    if isinstance(event, yaml.AliasEvent):
        if event.anchor not in found.anchors:
            raise _refusal(f"found undefined alias {event.anchor!r}", event)
        found.aliases[place] = found.anchors[event.anchor]
    elif event.anchor is not None:
        found.anchors[event.anchor] = place
    if isinstance(event, _OPENING):
        open_.append(place)
    else:
        found.after[place] = place + 1


def _refusal(problem: str, event: Any) -> yaml.YAMLError:
    return yaml.composer.ComposerError(None, None, problem, event.start_mark)
