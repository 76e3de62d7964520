"""Cost of moving each running task run, independent of its target."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.model.planning.snapshot import RunView
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.migration_cost import expected_migration_cost, share
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLIS_PER_HOUR, InstanceId, JobId, RunId


def move_costs(problem: Problem, runs: Iterable[RunView]) -> dict[RunId, int]:
    """Estimate in micro-dollars what each running task run's move would cost.

    A gang stops and starts as a whole, so each member answers for all of them.

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
            residents = problem.instances[place].residents
            total[place] = sum(_price(problem, resident) for resident in residents)
        own = _price(problem, run.id)
        held = share(problem.offering_of(place).price, own, total[place])
        return expected_migration_cost(problem.jobs[run.job], own, held) // MILLIS_PER_HOUR

    for run in runs:
        if not run.running or run.instance not in problem.instances:
            continue
        job = problem.jobs[run.job]
        if job.spec.kind is not JobKind.GANG or len(job.runs) == 1:
            cost[run.id] = idle(run)
            continue
        if run.job not in gangs:
            gangs[run.job] = sum(idle(problem.runs[member]) for member in job.runs)
        cost[run.id] = gangs[run.job]
    return cost


def _price(problem: Problem, run: RunId) -> int:
    return problem.classes[problem.class_of[run]].price
