"""The values of a job's message that its submission states, each described once.

A row gives the value from the job, and its forms in ``--json`` and in `eva status`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Job


@dataclass(frozen=True, slots=True)
class JobField:
    """A value of a job's message.

    Attributes:
        name: Name in the message.
        stated: The value, from the specification of the job (`eva_master.model.job`).
        json: The value in ``--json``, from that of the message.
        key: Name in ``--json``; empty for that in the message.
        words: The value in `eva status`, where it is not empty; `None` if it has no line there.
    """

    name: str
    stated: Callable[[Any], Any]
    json: Callable[[Any], Any]
    key: str = ""
    words: Callable[[Any], str] | None = None


def _as_it_is(value: Any) -> Any:
    return value


def _or_null(value: Any) -> Any:
    return value or None


def _pairs(labels: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


FIELDS = (
    JobField("name", lambda spec: spec.name, _as_it_is),
    JobField("owner", lambda spec: spec.owner, _as_it_is),
    JobField("tenant", lambda spec: spec.tenant, _as_it_is),
    JobField("priority", lambda spec: spec.priority, _as_it_is),
    JobField("after", lambda spec: spec.stage.depends_on, list),
    JobField("only_ended", lambda spec: spec.stage.only_ended, list, key="after_ended"),
    JobField("retry_of", lambda spec: "" if spec.retry is None else spec.retry.job, _or_null),
    JobField("dag", lambda spec: spec.stage.dag, _or_null, words=str),
    JobField("labels", lambda spec: dict(spec.labels), dict, words=_pairs),
    JobField("notify", lambda spec: [topic.value for topic in spec.notify], list, words=", ".join),
)


def message_values(spec: Any) -> dict[str, Any]:
    """The values of a job's message, by name."""
    return {field.name: field.stated(spec) for field in FIELDS}


def json_values(message: Job) -> dict[str, Any]:
    """The values in ``--json``, by key."""
    return {field.key or field.name: field.json(getattr(message, field.name)) for field in FIELDS}


def lines(message: Job) -> list[tuple[str, str]]:
    """Names and words of the lines in `eva status`."""
    values = [(field, getattr(message, field.name)) for field in FIELDS]
    return [(field.name, field.words(value)) for field, value in values if value and field.words]
