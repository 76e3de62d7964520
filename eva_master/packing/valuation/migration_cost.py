"""What is lost if a running copy has to move."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.model.ids import MILLIS_PER_HOUR, CopyId, InstanceId, JobId
from eva_master.model.job import JobKind
from eva_master.model.planning.snapshot import CopyView
from eva_master.packing.problem import Problem


def stakes(problem: Problem, copies: Iterable[CopyView]) -> dict[CopyId, int]:
    """Estimate in micro-dollars what each running copy's move would cost.

    While it is checkpointed and started it holds its share of the instance idle, and as much as
    its reservation price elsewhere. A gang stops and starts as a whole: each member answers for
    all of them.

    Args:
        problem: The snapshot's.
        copies: Which to look at.
    """
    total: dict[InstanceId, int] = {}
    cost: dict[CopyId, int] = {}
    gangs: dict[JobId, int] = {}

    def idle(copy: CopyView) -> int:
        place = copy.instance
        if not copy.running or place is None or place not in problem.instances:
            return 0
        if place not in total:
            total[place] = _everyone(problem, place)
        return _idle(problem, copy, total[place])

    for copy in copies:
        if not copy.running or copy.instance not in problem.instances:
            continue
        job = problem.jobs[copy.job]
        if job.kind is not JobKind.GANG or len(job.copies) == 1:
            cost[copy.id] = idle(copy)
            continue
        if copy.job not in gangs:
            gangs[copy.job] = sum(idle(problem.copies[member]) for member in job.copies)
        cost[copy.id] = gangs[copy.job]
    return cost


def _everyone(problem: Problem, place: InstanceId) -> int:
    """The reservation prices of all who are there."""
    residents = problem.instances[place].residents
    return sum(problem.classes[problem.class_of[copy]].price for copy in residents)


def _idle(problem: Problem, copy: CopyView, everyone: int) -> int:
    assert copy.instance is not None
    job = problem.jobs[copy.job]
    mine = problem.classes[problem.class_of[copy.id]].price
    price = problem.offering_of(copy.instance).price
    share = price * mine // everyone if everyone else price
    return (share + mine) * (job.checkpoint_ms + job.launch_ms) // MILLIS_PER_HOUR
