"""Checks the sizes that a plan gives to elastic gangs, and the rest of the plan with them."""

from __future__ import annotations

from collections.abc import Collection

from eva_master.control.planning.validate_plan import Decision, reconcile
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Plan, Suspend
from eva_master.model.planning.sizes import resizable, with_sizes
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import by_id, replace
from eva_wire.values.ids import InstanceId, JobId, RunId


def sizes_of(plan: Plan) -> dict[JobId, int]:
    """The sizes that a plan gives to elastic gangs."""
    return {entry.job: entry.members for entry in plan.sizes}


def lawful(now: Snapshot, plan: Plan) -> Plan:
    """A plan without sizes that a gang cannot have, or not now, and without what depends on them.

    Args:
        now: The cluster as it is.
        plan: The policy's.
    """
    if not plan.sizes:
        return plan
    allowed = {job.id: job.sharing.elastic for job in resizable(now)}
    refused = {
        entry.job
        for entry in plan.sizes
        if (elastic := allowed.get(entry.job)) is None
        or not elastic.least <= entry.members <= elastic.most
    }
    suspended = {entry.run for entry in plan.entries if isinstance(entry, Suspend)}
    jobs = by_id(now.jobs)
    refused |= {job for job in sizes_of(plan).keys() & jobs if suspended & {*jobs[job].runs}}
    return without_sizes(now, plan, refused) if refused else plan


def reconciled(now: Snapshot, plan: Plan, ordered: Collection[InstanceId] = ()) -> Decision:
    """Check a plan against the present, see `validate_plan.reconcile`.

    A running gang changes its size if all members of the new size get places, or keep theirs.
    Otherwise it stays as it is.

    Args:
        now: The cluster at present, with its present sizes.
        plan: A plan from `lawful`.
        ordered: Instances that an operator has drained.
    """
    dropped: set[RunId] = set()
    while True:
        resized = with_sizes(now, sizes_of(plan))
        decision = reconcile(resized, plan, ordered)
        failed = _failed(now, resized, plan, decision)
        if not failed:
            present = {view.id for view in now.jobs} if plan.sizes else set[JobId]()
            sizes = tuple(entry for entry in plan.sizes if entry.job in present)
            rest = (*decision.dropped, *sorted(dropped.difference(decision.dropped)))
            return replace(decision, sizes=sizes, dropped=rest)
        dropped |= {
            entry.run
            for entry in plan.entries
            if isinstance(entry, Assign) and _job_of(entry.run) in failed
        }
        plan = without_sizes(now, plan, failed)


def _failed(now: Snapshot, resized: Snapshot, plan: Plan, decision: Decision) -> set[JobId]:
    """Gangs that run, and of whose members not all would have a place."""
    if not plan.sizes:
        return set()
    before = {run.id: run.instance for run in now.runs}
    after = {run.id: run.instance for run in resized.runs} | dict(decision.places)
    jobs = {job.id: job for job in resized.jobs}
    run_now = {job.id for job in now.jobs if any(before[run] is not None for run in job.runs)}
    return {
        job
        for job in sizes_of(plan).keys() & run_now
        if any(after[run] is None for run in jobs[job].runs)
    }


def without_sizes(now: Snapshot, plan: Plan, jobs: Collection[JobId]) -> Plan:
    """A plan in which some gangs keep their sizes and their places."""
    jobs_by_id: dict[JobId, JobView] = {job.id: job for job in now.jobs}
    sizes = tuple(entry for entry in plan.sizes if entry.job not in jobs)
    entries = tuple(
        entry
        for entry in plan.entries
        if (job := _job_of(entry.run)) not in jobs
        or (
            job in jobs_by_id
            and not isinstance(entry, Assign | Suspend)
            and entry.run in jobs_by_id[job].runs
        )
    )
    return replace(plan, sizes=sizes, entries=entries)


def _job_of(run: RunId) -> JobId:
    return JobId(run.rpartition("/")[0])
