"""M (Eva, section 4.5): what it costs to get from the present configuration to another one."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.planning.snapshot import RunView
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.migration_cost import launch_cost, migration_cost, share
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION


def moved(problem: Problem, configuration: Configuration) -> list[RunView]:
    """Running task runs that are to run elsewhere."""
    places, runs = configuration.places, problem.runs
    elsewhere = [run for run, home in problem.standing.places.items() if places.get(run) != home]
    moves = [runs[run] for run in elsewhere if run in places]
    return [run for run in moves if run.running and not run.pinned]


def reconfiguration_cost(
    problem: Problem,
    present: Configuration,
    configuration: Configuration,
    moves: Sequence[RunView],
) -> int:
    """The cost of a change, in micro-dollars per hour times milliseconds.

    A task run that moves holds its share of the source and of the target idle while it is
    checkpointed and started; its share of an instance is to the others' as their reservation
    prices are. The other running members of its gang stop and start with it, where they are.
    Each new instance is paid for while it comes up. A task that starts for the first time
    is no migration.

    Args:
        problem: The snapshot's.
        present: Where everything is now.
        configuration: Where it is to be.
        moves: The task runs that move, see `moved`.
    """
    cost: int = sum(launch_cost(launch.offering) for launch in configuration.launches)
    for run in disturbed(problem, moves):
        cost += idle_cost(problem, present, configuration, run)
    return cost


def idle_cost(
    problem: Problem, present: Configuration, configuration: Configuration, run: RunView
) -> int:
    """Cost of the room idle for a disturbed task run, see `reconfiguration_cost`."""
    source = run.instance
    target = configuration.places.get(run.id, source)
    elsewhere = _share(problem, configuration, run, target) if target != source else 0
    held = _share(problem, present, run, source)
    return migration_cost(problem.jobs[run.job], held, elsewhere)


def disturbed(problem: Problem, moves: Sequence[RunView]) -> list[RunView]:
    """Task runs that move, and the running members of their gangs."""
    gangs = {run.job for run in moves if problem.jobs[run.job].spec.kind is JobKind.GANG}
    moving = {run.id for run in moves}
    return [*moves] + [
        problem.runs[member]
        for job in sorted(gangs)
        for member in problem.jobs[job].runs
        if member not in moving and problem.runs[member].running
    ]


def _share(problem: Problem, configuration: Configuration, run: RunView, host: Host | None) -> int:
    """The task run's part of an instance's price, in micro-dollars per hour."""
    if host is None or host not in configuration.task_sets:
        return 0
    if isinstance(host, int):
        price = configuration.launches[host].offering.price
    else:
        price = problem.offering_of(host).price
    own = problem.classes[problem.class_of[run.id]].price
    return share(price, own, _reservation_prices(problem, configuration.task_sets[host]))


def _reservation_prices(problem: Problem, task_set: TaskSet) -> int:
    return sum(count * problem.classes[number].price for number, count in task_set.items())


def net_value(savings: int, horizon_ms: int, cost: int) -> int:
    """S D̂ - M (section 4.5), in millionths of micro-dollars per hour times milliseconds.

    Args:
        savings: S, in millionths of micro-dollars per hour.
        horizon_ms: D̂, in milliseconds.
        cost: M, in micro-dollars per hour times milliseconds.
    """
    return savings * horizon_ms - cost * MILLION
