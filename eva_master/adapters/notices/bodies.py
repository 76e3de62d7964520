"""Bodies of notices: JSON, Slack's form, or a template of the operator's. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Template

from eva_master.model.notices import Notice
from eva_wire.text.escapes import visible
from eva_wire.text.moments import date_of

JSON, SLACK = "json", "slack"
LONGEST_TEMPLATE = 4_096
"""Characters."""
_AS_JSON, _AS_TEXT = "application/json", "text/plain; charset=utf-8"
_LONGEST_VALUE = 2_000
"""Characters of one value, so that a body is short whatever a job is called."""
_SAMPLE = 'a"\\\n\t<&>'


@dataclass(frozen=True, slots=True)
class Body:
    """The content of a delivery.

    Attributes:
        content: The bytes.
        content_type: For the header.
    """

    content: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Form:
    """How a receiver wants to be told: see `form_of`."""

    template: str = JSON
    content_type: str = _AS_JSON

    def body(self, notice: Notice, cluster: str) -> Body:
        """The body of a notice.

        Args:
            notice: The notice.
            cluster: Name of the cluster.
        """
        if self.template == JSON:
            return Body(json.dumps(_fields(notice, cluster)).encode(), self.content_type)
        if self.template == SLACK:
            # Slack marks links up and names people unless it is told not to.
            text = _for_slack(sentence(notice, cluster))
            message = {"text": text, "mrkdwn": False, "parse": "none", "unfurl_links": False}
            return Body(json.dumps(message).encode(), self.content_type)
        escape = _in_json if self.content_type == _AS_JSON else visible
        text = Template(self.template).safe_substitute(_values(notice, cluster, escape))
        return Body(text.encode(), self.content_type)


def form_of(template: str) -> Form:
    """A form by its name, or a template with ``$NAME`` for each value.

    A template that is JSON once it is filled stays so, whatever the values are.

    Raises:
        ValueError: The template cannot be used; the text says why.
    """
    if template in (JSON, SLACK):
        return Form(template)
    if len(template) > LONGEST_TEMPLATE:
        raise ValueError(f"it has more than {LONGEST_TEMPLATE:,} characters")
    pattern = Template(template)
    if not pattern.is_valid():
        raise ValueError("a '$' in it is no part of a name; write '$$' for a dollar")
    unknown = sorted({*pattern.get_identifiers()} - {*_VALUES})
    if unknown:
        raise ValueError(f"${unknown[0]} is no value; values are {', '.join(_VALUES)}")
    if not pattern.get_identifiers():
        raise ValueError(f"it has no value in it, and is neither {JSON} nor {SLACK}")
    if template.lstrip()[:1] not in ("{", "["):
        return Form(template, _AS_TEXT)
    try:
        json.loads(pattern.substitute(dict.fromkeys(_VALUES, _in_json(_SAMPLE))))
    except ValueError:
        raise ValueError("it begins as JSON does and is none: quote each value") from None
    return Form(template)


def sentence(notice: Notice, cluster: str) -> str:
    """A notice in one sentence."""
    about = notice.task or notice.job or notice.instance
    named = notice.name and not notice.job.startswith(f"{notice.name}-")
    name = f" ({notice.name})" if named else ""
    owner = f" of {notice.owner}" if notice.owner else ""
    more = f", and {notice.count - 1:,} more alike" if notice.count > 1 else ""
    tasks = "" if not notice.tasks else f". Tasks: {_counts(notice.tasks)}"
    subject = f"{about}{name}{owner}: " if about else ""
    return f"[{cluster}] {subject}{notice.text}{more}{tasks}"


def _counts(tasks: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in tasks.items())


def _moment(notice: Notice) -> str:
    return date_of(notice.at_ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def _fields(notice: Notice, cluster: str) -> dict[str, object]:
    return {
        "id": notice.id,
        "cluster": cluster,
        "at": _moment(notice),
        "topic": notice.topic,
        "kind": notice.kind,
        "job": notice.job,
        "name": notice.name,
        "owner": notice.owner,
        "tenant": notice.tenant,
        "task": notice.task,
        "instance": notice.instance,
        "text": notice.text,
        "count": notice.count,
        "tasks": dict(notice.tasks),
    }


_VALUES: Mapping[str, Callable[[Notice, str], str]] = {
    "id": lambda notice, _: notice.id,
    "cluster": lambda _, cluster: cluster,
    "at": lambda notice, _: _moment(notice),
    "topic": lambda notice, _: notice.topic,
    "kind": lambda notice, _: notice.kind,
    "job": lambda notice, _: notice.job,
    "name": lambda notice, _: notice.name,
    "owner": lambda notice, _: notice.owner,
    "tenant": lambda notice, _: notice.tenant,
    "task": lambda notice, _: notice.task,
    "instance": lambda notice, _: notice.instance,
    "text": lambda notice, _: notice.text,
    "count": lambda notice, _: str(notice.count),
    "tasks": lambda notice, _: _counts(notice.tasks),
    "sentence": sentence,
}
"""Values of templates, each in words."""


def _values(notice: Notice, cluster: str, escape: Callable[[str], str]) -> dict[str, str]:
    return {
        name: escape(value(notice, cluster)[:_LONGEST_VALUE]) for name, value in _VALUES.items()
    }


def _in_json(text: str) -> str:
    """A text as it stands between the quotes of JSON."""
    return json.dumps(text)[1:-1]


def _for_slack(text: str) -> str:
    """A text in which nothing is markup of Slack's, on one line."""
    one_line = visible(" ".join(text.split()))[:_LONGEST_VALUE]
    return one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
