"""Jobs, and jobs as policies see them, for tests: values by name, whichever group has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from eva_master.model.job import (
    ArrayRules,
    ElasticGang,
    FailureRules,
    ForkRules,
    JobSpec,
    JobStage,
    Restarts,
    Training,
)
from eva_master.model.planning.job_view import (
    ArrayView,
    Delays,
    JobProgress,
    JobTenancy,
    JobView,
    Sharing,
    Urgency,
)
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId

_GROUPS: dict[str, type] = {
    "delays": Delays,
    "progress": JobProgress,
    "array": ArrayView,
    "sharing": Sharing,
    "urgency": Urgency,
    "tenancy": JobTenancy,
}
_SPEC_GROUPS: dict[str, type] = {
    "stage": JobStage,
    "restarts": Restarts,
    "failing": FailureRules,
    "array": ArrayRules,
    "elastic": ElasticGang,
    "forking": ForkRules,
    "training": Training,
}
_OWN = frozenset(field.name for field in fields(JobSpec))
_GROUP_OF = {field.name: group for group, kind in _SPEC_GROUPS.items() for field in fields(kind)}
_NAMES = (_OWN | _GROUP_OF.keys()) - {"tasks"}


def with_values(spec: JobSpec, values: Mapping[str, Any]) -> JobSpec:
    """A job with other values, given by their names in the job or in one of its groups.

    Raises:
        KeyError: A job has no value of such a name.
    """
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name in _OWN:
            changes[name] = value
        else:
            group = _GROUP_OF[name]
            changes[group] = replace(changes.get(group, getattr(spec, group)), **{name: value})
    return replace(spec, **changes)


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
        named = {field.name for field in fields(kind)} & values.keys()
        if named:
            value = changes.get(group, getattr(view, group))
            changes[group] = replace(value, **{name: values.pop(name) for name in sorted(named)})
    if stated := _NAMES & values.keys():
        spec = changes.get("spec", view.spec)
        changes["spec"] = with_values(spec, {name: values.pop(name) for name in stated})
    if values:
        raise TypeError(f"a job as policies see it has no {sorted(values)}")
    return replace(view, **changes)
