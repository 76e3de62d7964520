"""What a plan is about: which jobs, where their task runs are, and which of these are fixed."""

from __future__ import annotations

from eva_master.control.state.records import Records
from eva_master.model.ids import InstanceId
from eva_master.model.records import Job, TaskRun
from eva_master.model.states import JobState, RunState


def plans_job(state: Records, job: Job) -> bool:
    """Whether a plan is about the job.

    It is, unless the job has ended, begun to end, or waits for others that it depends on.
    """
    return job.id in state.active and job.state is not JobState.ENDING and not job.waits


def pinned(unit: list[TaskRun]) -> bool:
    """Whether task runs that start and stop together are between places.

    They are while one of them starts, stops or moves, and when all that wait know where to go. A
    gang of which some have lost their place is open to planning again. One of which some are done
    stays where it is: a move would have them all start over.
    """
    if len(unit) == 1 and unit[0].state is RunState.WAITING:
        return unit[0].target is not None  # most of a long queue
    if any(in_transit(run) for run in unit):
        return True
    states = {run.state for run in unit}
    if states == {RunState.RUNNING, RunState.SUCCEEDED}:
        return True
    waiting = [run for run in unit if run.state is RunState.WAITING]
    return bool(waiting) and all(run.target is not None for run in waiting)


def in_transit(run: TaskRun) -> bool:
    """Whether a task run starts, stops or is to run elsewhere."""
    match run.state:
        case RunState.STARTING | RunState.STOPPING:
            return True
        case RunState.RUNNING:
            return run.target != run.instance
        case _:
            return False


def place(state: Records, run: TaskRun) -> InstanceId | None:
    """Where a task run is or is about to be, as far as it may stay there."""
    at_risk = run.target is not None and state.instances[run.target].at_risk
    return None if at_risk else run.target
