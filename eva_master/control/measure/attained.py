"""How far jobs have come and what they have had: steps, time on GPUs, time where they are."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.control.state.records import PlanningRecords, Records
from eva_master.model.planning.job_view import NO_GPU_TIME, GpuTime
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import Millis
from eva_wire.values.states import RunState

_PARTS = 100
"""Steps that are left are told to so many parts of all steps."""
_IN_ATTEMPT = frozenset({RunState.RUNNING, RunState.STOPPING, RunState.SUCCEEDED})


def gpus(state: Records, run: TaskRun) -> int:
    """How many GPUs a task run has where it is."""
    if run.instance is None:
        return 0
    need = state.task(run).demand_on(state.instances[run.instance].offering.type.family)
    return 0 if need is None else need.gpus


def gpu_time(state: PlanningRecords, job: Job, seen: Sequence[TaskRun]) -> GpuTime:
    """The time for which a job has had GPUs.

    Args:
        state: Where it is looked up.
        job: The job.
        seen: All of its task runs that run.
    """
    base, number = state.tasks.gpu_ms(job.id), 0
    if not base and not any(
        need.gpus for kind in state.tasks.kinds(job.id) for _, need in kind.demand
    ):
        return NO_GPU_TIME
    for run in seen:
        if run.state is RunState.RUNNING and (own := gpus(state, run)):
            base -= own * run.since_ms
            number += own
    return GpuTime(base, number) if base or number else NO_GPU_TIME


def steps_left(job: Job, seen: Sequence[TaskRun]) -> int | None:
    """Remaining iterations of a gang, to a hundredth of all; `None` if unknown.

    Its members count the same steps. Members without reports are ignored.
    """
    if job.merging is not None and (total := job.spec.total_steps) is not None:
        own = next((run.progress.steps for run in seen if not run.extra), 0)
        return _rounded(total, total - job.merging.done(total, own))
    if not job.is_gang or not seen:
        return None
    total = max(run.progress.total_steps for run in seen) or job.spec.total_steps
    if not total:
        return None
    kept = any(run.generation for run in seen)
    steps = [run.progress.steps for run in seen if kept or run.state in _IN_ATTEMPT]
    return _rounded(total, total - min((count for count in steps if count), default=0))


def _rounded(total: int, left: int) -> int:
    part = max(1, total // _PARTS)
    return min(total, -(-max(0, left) // part) * part)


def lease_ms(job: Job, seen: Sequence[TaskRun]) -> Millis | None:
    """Since when a job has been running where it is; `None` if it does not."""
    began = [run.since_ms for run in seen if run.state is RunState.RUNNING]
    if not began:
        return None
    return Millis(max(began) if job.is_gang else min(began))
