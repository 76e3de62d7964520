"""Jobs as policies see them, for tests: values by their names, whichever group has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from eva_master.model.ids import JobId, Millis, RunId
from eva_master.model.job import JobKind, JobSpec
from eva_master.model.planning.job_view import (
    ArrayView,
    Delays,
    JobTenancy,
    JobView,
    Progress,
    Sharing,
    Urgency,
)

_GROUPS: dict[str, type] = {
    "delays": Delays,
    "progress": Progress,
    "array": ArrayView,
    "sharing": Sharing,
    "urgency": Urgency,
    "tenancy": JobTenancy,
    "spec": JobSpec,
}


def job_view(
    name: str,
    kind: JobKind = JobKind.GANG,
    runs: Sequence[RunId] = (),
    submitted_ms: int = 0,
    priority: int = 0,
    **values: Any,
) -> JobView:
    """A job of nobody's.

    Args:
        name: Its id and name.
        kind: Gang or array.
        runs: Its task runs that want a place.
        submitted_ms: When it was submitted.
        priority: Its priority.
        values: Other values, see `changed`.
    """
    spec = JobSpec(name, "", (), kind=kind, priority=priority)
    view = JobView(JobId(name), spec, tuple(runs), Millis(submitted_ms), priority)
    return changed(view, **values)


def changed(view: JobView, **values: Any) -> JobView:
    """A job with other values, given by their names in the view or in one of its groups.

    Raises:
        TypeError: Neither has a value of such a name.
    """
    own = {field.name for field in fields(JobView)}
    changes: dict[str, Any] = {name: values.pop(name) for name in own & values.keys()}
    for group, kind in _GROUPS.items():
        named = ({field.name for field in fields(kind)} - {"tasks"}) & values.keys()
        if named:
            value = changes.get(group, getattr(view, group))
            changes[group] = replace(value, **{name: values.pop(name) for name in sorted(named)})
    if values:
        raise TypeError(f"a job as policies see it has no {sorted(values)}")
    return replace(view, **changes)
