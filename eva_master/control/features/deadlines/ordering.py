"""How jobs stand to their deadlines, as plans see it: which go first, and which are not stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from eva_master.control.features.deadlines.slack import has_a_choice, slack, slack_alone_ms
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords
from eva_master.model.planning.job_view import Due, JobView
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.deadlines.ahead import ahead_of_equals
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis


def with_due(
    state: PlanningRecords, seen: Snapshot, now: Millis, settings: Settings, *, own_order: bool
) -> Snapshot:
    """A snapshot with jobs' standing against their deadlines, and with jobs that go before equals.

    No plan stops a job that a change of place would make late.

    Args:
        state: The records, with the jobs.
        seen: The snapshot for a plan.
        now: The time.
        settings: Assumed delays.
        own_order: Whether the policy orders jobs by itself, so that none goes before its equals.
    """
    if not state.with_deadlines:
        return seen
    due: dict[JobId, Due] = {}
    for view in (view for view in seen.jobs if view.id in state.with_deadlines):
        if (stands := _due(state, view, now, settings)) is not None:
            due[view.id] = stands
    if not due:
        return seen
    ahead = {} if own_order else ahead_of_equals(seen, due, now)
    if not own_order:
        seen = _pinned(state, seen, due, settings)
    changed = due.keys() | ahead.keys()
    jobs = tuple(
        replace(job, urgency=replace(job.urgency, due=due.get(job.id), ahead=ahead.get(job.id)))
        if job.id in changed
        else job
        for job in seen.jobs
    )
    return replace(seen, jobs=jobs)


def _due(state: PlanningRecords, view: JobView, now: Millis, settings: Settings) -> Due | None:
    job = state.jobs.get(view.id)
    deadline = None if job is None else job.spec.deadline
    if job is None or deadline is None:
        return None
    at_ms = deadline.due_ms(job.submitted_ms, state.wall)
    stands = slack(state, job, now, settings) if now < at_ms else None
    if stands is None:
        return None
    slack_ms = slack_alone_ms(state, job, now, stands)
    if slack_ms + stands.reserve_ms < 0:
        return None  # A job that is late whatever happens delays no other one.
    return Due(Millis(at_ms), slack_ms)


def _pinned(
    state: PlanningRecords, seen: Snapshot, due: Mapping[JobId, Due], settings: Settings
) -> Snapshot:
    """A snapshot in which no plan stops a job that a change of place would make late.

    A job that may run on either market is handled by the choice of its market.
    """
    hurried = {
        name
        for name, stands in due.items()
        if stands.slack_ms <= 0 and not has_a_choice(state, state.jobs[name], settings)
    }
    if not hurried:
        return seen
    live = {view.id for view in seen.instances}
    running = {
        run.id: run.job
        for run in seen.runs
        if run.job in hurried and run.running and run.instance in live
    }
    whole = Counter(running.values())
    torn = {
        view.id
        for view in seen.jobs
        if view.id in hurried and view.spec.kind is JobKind.GANG and whole[view.id] < len(view.runs)
    }
    stays = {run for run, job in running.items() if job not in torn}
    runs = tuple(replace(run, pinned=True) if run.id in stays else run for run in seen.runs)
    return replace(seen, runs=runs)
