"""Deadlines that cannot be kept, which are refused at submission."""

from __future__ import annotations

from eva_master.control.features.deadlines.earliest import Earliest, earliest
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords
from eva_master.model.catalog import is_spot
from eva_master.model.job import JobSpec, different
from eva_wire.values.durations import span
from eva_wire.values.errors import InvalidJob
from eva_wire.values.ids import Millis

_MINUTE_MS = 60_000


def refusal(
    state: PlanningRecords, spec: JobSpec, now: Millis, settings: Settings
) -> InvalidJob | None:
    """Why a deadline cannot be kept, `None` if it can be as far as is known.

    Other jobs do not count, except those that the job waits for: they may end sooner than stated.

    Args:
        state: The records.
        spec: The job, with its partition.
        now: The time.
        settings: Settings, with the limits.
    """
    if spec.deadline is None:
        return None
    within_ms = spec.deadline.due_ms(now, state.wall) - now
    if within_ms <= 0:
        return InvalidJob("the deadline has passed", hint="write a later one, or remove it")
    bound = earliest(state, spec, now, settings)
    if within_ms >= bound.ms:
        return None
    minutes = -(-bound.ms // _MINUTE_MS)
    on_demand = not all(
        is_spot(family) for task in different(spec.tasks) for family, _ in task.demand
    )
    takes = f"{'on demand ' if on_demand else ''}the job takes {span(minutes * _MINUTE_MS)}"
    return InvalidJob(
        f"the deadline is in {span(within_ms)}, and {takes}{_why(spec, bound)}",
        hint=f"write `deadline: {{within: {minutes}m}}` or a later one",
    )


def _why(spec: JobSpec, bound: Earliest) -> str:
    """Parts of a bound beside the time of one task."""
    parts = []
    if bound.after:
        parts.append(f"{bound.after}, after which it runs, takes {span(bound.after_ms)}")
    if bound.at_once:
        parts.append(f"{bound.at_once:,} of its {spec.size:,} tasks run at a time")
    return f" at least: {'; '.join(parts)}" if parts else ""
