"""How the tasks of instances are confined, in lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eva_client.cli.views.words import plain

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Instance

_MOST_NAMED = 3


def confinements(instances: Iterable[Instance]) -> list[str]:
    """One line for each way in which tasks of instances are confined, with its reason."""
    names: dict[str, list[str]] = {}
    for instance in instances:
        if instance.confinement and instance.state != "gone":
            names.setdefault(plain(instance.confinement), []).append(instance.id)
    if len(names) == 1:
        return [f"tasks are confined by {how}" for how in names]
    return [f"tasks on {_named(on)} are confined by {how}" for how, on in sorted(names.items())]


def _named(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
