"""Places that tasks have not begun on, given up for jobs that would be late behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eva_master.control.context import Context
from eva_master.control.planning import quota_use
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.records import TaskRun
from eva_master.model.resources import NOTHING
from eva_master.packing.deadlines.ahead import PASSED_MS
from eva_master.packing.deadlines.sparing import would_be_late
from eva_master.packing.precedence import precedence
from eva_master.packing.room import room_beside
from eva_wire.values.ids import InstanceId, JobId
from eva_wire.values.states import RunState


def yield_places(context: Context, shown: Snapshot, tried: set[JobId]) -> None:
    """Give jobs that would be late the places of tasks that wait for an instance to boot.

    Nothing is lost by that. Each job gets this once, so that no place goes back and forth; a gang
    of several neither yields nor is yielded to.

    Args:
        context: The state of the turn in which a plan was adopted.
        shown: The snapshot that the plan's policy saw.
        tried: Jobs that have been handled before; more are added.
    """
    urgent = [view for view in shown.jobs if view.urgency.ahead is not None]
    jobs = {view.id: view for view in shown.jobs} if urgent else {}
    for job in sorted(urgent, key=precedence):
        if job.urgency.due is None or job.id in tried or not job.stands_in_line:
            continue
        if not _may_have_more(context, job):
            continue
        for run in _unplaced(context, shown, job):
            name, victims = _victims(context, jobs, job, run)
            if name is not None:
                tried.add(job.id)
                for victim in victims:
                    context.turn_back(victim, name)
                context.retarget(context.state.runs[run.id], name)


def _unplaced(context: Context, shown: Snapshot, job: JobView) -> Iterator[RunView]:
    for view in shown.runs:
        if view.job == job.id and view.instance is None and not view.pinned:
            run = context.state.runs.get(view.id)
            if run is not None and run.state is RunState.WAITING and run.target is None:
                yield view


def _may_have_more(context: Context, job: JobView) -> bool:
    """Whether the quota of a job's tenant allows another task of it."""
    settings, record = context.settings, context.state.jobs[job.id]
    home = settings.partitions.home(record.partition)
    return quota_use.within_quota(context.state, settings.tenancy, home, record)


def _victims(
    context: Context, jobs: Mapping[JobId, JobView], job: JobView, run: RunView
) -> tuple[InstanceId | None, list[TaskRun]]:
    """An instance with the fewest tasks to displace for a task run; `None` if there is none."""
    options: list[tuple[InstanceId, list[TaskRun]]] = []
    for name in context.state.live:
        if victims := _victims_on(context, jobs, job, run, name):
            options.append((name, victims))
    return min(options, key=lambda it: len(it[1]), default=(None, []))


def _victims_on(
    context: Context, jobs: Mapping[JobId, JobView], job: JobView, run: RunView, name: InstanceId
) -> list[TaskRun]:
    state = context.state
    instance = state.instances[name]
    targeting = state.places.targeting(name)
    need = run.task.demand_on(instance.offering.type.family)
    home = context.settings.partitions.home
    if need is None or not state.can_place(name) or instance.stands:
        return []
    if home(instance.partition) is not home(job.partition):
        return []
    free, victims = room_beside(instance.offering, state.demand(targeting, instance)), []
    for other in targeting:
        if need.fits(free):
            break
        view = jobs.get(other.job)
        waits = other.state is RunState.WAITING and not other.extra
        if view is None or not waits or not _comes_after(context, view, job, run):
            continue
        victims.append(other)
        free = free + (state.task(other).demand_on(instance.offering.type.family) or NOTHING)
    return victims if need.fits(free) else []


def _comes_after(context: Context, other: JobView, job: JobView, run: RunView) -> bool:
    """Whether a job yields the place of a task that has not begun."""
    if other.id == job.id or other.priority > job.priority or other.urgency.ahead is not None:
        return False
    if not other.stands_in_line or context.state.jobs[other.id].buys.kept:
        return False
    if context.now - other.submitted_ms >= PASSED_MS:
        return False
    return not would_be_late(other, [run], context.now)
