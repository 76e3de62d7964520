"""What is lost if a running copy has to move."""

from __future__ import annotations

from eva_master.model.ids import MILLIS_PER_HOUR, CopyId, InstanceId
from eva_master.model.job import JobKind
from eva_master.model.snapshot import CopyView
from eva_master.packing.problem import Problem


def stakes(problem: Problem) -> dict[CopyId, int]:
    """Estimate in micro-dollars what each running copy's move would cost.

    While it is checkpointed and started it holds its share of the instance idle, and as much as
    its reservation price elsewhere. A gang stops and starts as a whole: each member answers for
    all of them.
    """
    total: dict[InstanceId, int] = {}
    for copy in problem.snapshot.copies:
        if copy.instance in problem.instances:
            assert copy.instance is not None
            price = problem.classes[problem.class_of[copy.id]].price
            total[copy.instance] = total.get(copy.instance, 0) + price
    idle = {
        copy.id: _idle(problem, copy, total[copy.instance])
        for copy in problem.snapshot.copies
        if copy.running and copy.instance in total
    }
    for job in problem.snapshot.jobs:
        if job.kind is JobKind.GANG and len(job.copies) > 1:
            whole = sum(idle.get(copy, 0) for copy in job.copies)
            idle.update((copy, whole) for copy in job.copies if copy in idle)
    return idle


def _idle(problem: Problem, copy: CopyView, everyone: int) -> int:
    assert copy.instance is not None
    job = problem.jobs[copy.job]
    mine = problem.classes[problem.class_of[copy.id]].price
    price = problem.offering_of(copy.instance).price
    share = price * mine // everyone if everyone else price
    return (share + mine) * (job.checkpoint_ms + job.launch_ms) // MILLIS_PER_HOUR
