"""Scope of a plan: its jobs, their task runs' places, and which of these are fixed."""

from __future__ import annotations

from eva_master.control.state.records import Records
from eva_master.model.catalog import Purchase
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import JobState, RunState


def plans_job(state: Records, job: Job) -> bool:
    """Whether a plan covers the job.

    Plans leave out jobs that have ended, begun to end, were suspended by a user, or wait for others
    that they depend on; and those that wait for a secret, but for tasks that run.
    """
    if job.id not in state.active or job.suspension is not None:
        return False
    if job.missing_secrets and not state.in_hand(job.id):
        return False
    return job.state is not JobState.ENDING and not job.waits


def pinned(unit: list[TaskRun]) -> bool:
    """Whether task runs that start and stop together are between places.

    They are while one of them starts, stops or moves, and when all that wait know where to go. A
    gang of which some have lost their place is open to planning again. One of which some are done
    stays where it is: a move would have them all start over.
    """
    if len(unit) == 1:
        (run,) = unit
        return run.target is not None if run.state is RunState.WAITING else in_transit(run)
    if any(in_transit(run) for run in unit):
        return True
    states = {run.state for run in unit}
    if states == {RunState.RUNNING, RunState.SUCCEEDED}:
        return True
    waiting = [run for run in unit if run.state is RunState.WAITING]
    return bool(waiting) and all(run.target is not None for run in waiting)


def doubled(state: Records, job: Job, run: TaskRun) -> bool:
    """Whether an extra run of a run's task has a place, so that no plan moves any of its runs.

    So two of them never share an instance. The own run of a forked job may move: a fork in its way
    gives up its place.
    """
    if job.spec.forked:
        return run.extra
    return run.extra or (
        run.replicas > 0 and any(other.in_hand for other in state.runs.others(run))
    )


def in_transit(run: TaskRun) -> bool:
    """Whether a task run starts, stops or is to run elsewhere."""
    match run.state:
        case RunState.STARTING | RunState.STOPPING:
            return True
        case RunState.RUNNING:
            return run.target != run.instance
        case _:
            return False


def place(state: Records, run: TaskRun, *, fixed: bool = False) -> InstanceId | None:
    """Present or coming place of a task run, as far as it may stay there.

    Args:
        state: The records.
        run: The task run.
        fixed: Whether no plan moves it now. Then others cannot use its room, even on a spot
            instance that its job is to be kept off.
    """
    if run.target is None:
        return None
    instance = state.instances[run.target]
    leaves = instance.at_risk or (instance.drain is not None and instance.drain.moves)
    if instance.offering.purchase is Purchase.SPOT:
        # A spot instance is as good as at risk for a job without time to lose.
        leaves = leaves or (state.jobs[run.job].buys.kept and not fixed)
    return None if leaves else run.target


def finishes(state: Records, run: TaskRun) -> bool:
    """Whether a task run ends where it is, on an instance that is drained."""
    if run.target is None or run.target != run.instance:
        return False
    instance = state.instances[run.target]
    return instance.drain is not None and not instance.drain.moves and not instance.at_risk
