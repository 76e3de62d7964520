"""What is lost if a running task run has to move."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.model.ids import MILLIS_PER_HOUR, InstanceId, JobId, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.problem import Problem


def stakes(problem: Problem, runs: Iterable[RunView]) -> dict[RunId, int]:
    """Estimate in micro-dollars what each running task run's move would cost.

    While it is checkpointed and started it holds its share of the instance idle, and as much as
    its reservation price elsewhere. A gang stops and starts as a whole: each member answers for
    all of them.

    Args:
        problem: The snapshot's.
        runs: Which to look at.
    """
    total: dict[InstanceId, int] = {}
    cost: dict[RunId, int] = {}
    gangs: dict[JobId, int] = {}

    def idle(run: RunView) -> int:
        place = run.instance
        if not run.running or place is None or place not in problem.instances:
            return 0
        if place not in total:
            total[place] = _everyone(problem, place)
        return _idle(problem, run, total[place])

    for run in runs:
        if not run.running or run.instance not in problem.instances:
            continue
        job = problem.jobs[run.job]
        if job.kind is not JobKind.GANG or len(job.runs) == 1:
            cost[run.id] = idle(run)
            continue
        if run.job not in gangs:
            gangs[run.job] = sum(idle(problem.runs[member]) for member in job.runs)
        cost[run.id] = gangs[run.job]
    return cost


def _everyone(problem: Problem, place: InstanceId) -> int:
    """The reservation prices of all who are there."""
    residents = problem.instances[place].residents
    return sum(problem.classes[problem.class_of[run]].price for run in residents)


def _idle(problem: Problem, run: RunView, everyone: int) -> int:
    assert run.instance is not None
    job = problem.jobs[run.job]
    mine = problem.classes[problem.class_of[run.id]].price
    price = problem.offering_of(run.instance).price
    share = price * mine // everyone if everyone else price
    return (share + mine) * (job.checkpoint_ms + job.launch_ms) // MILLIS_PER_HOUR
