"""Worth of offerings' limits: the duals of their rows in the configuration LP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.resources import NOTHING
from eva_master.packing.greedy.algorithm1 import Supply, pack
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.column_generation import EffortLimits, Generator, PackingRequest
from eva_master.packing.lp.columns import Column
from eva_master.packing.lp.restricted_master import Relaxation
from eva_master.packing.problem import Problem
from eva_master.packing.round_work import round_budgets
from eva_wire.values.ids import MILLION, Family, OfferingId, Price

_WAITING = Offering(InstanceType("waiting", Family("waiting"), NOTHING), Price(0))
"""Where the LP puts tasks for which there is no room."""
_WAITING_COSTS = 2
"""Waiting costs so many times what a task's work is worth, since a place is to be found for all."""
_BUDGET = EffortLimits(iterations=12, class_iterations=1_200, total_nodes=16_000, nodes=3_000)


def limit_prices(problem: Problem, counts: Ints, supply: Supply) -> Mapping[OfferingId, Price]:
    """Worth of an instance of each limited offering beyond its price.

    The worth is half of the cost of one less and the saving by one more: the task on the margin
    would just pay it, and the next task would rather go elsewhere. There is no interference in this
    LP. A task without room waits; where an unlimited offering hosts it, running there costs less.

    Args:
        problem: The packing problem of the snapshot, at actual prices.
        counts: Tasks that have a place or wait for one, per class.
        supply: Instances that may be used of each offering, `None` for any number.

    Returns:
        Micro-dollars per hour by offering; offerings that are not scarce are left out.
    """
    limits = {name: most for name, most in supply.items() if most}
    if not limits or not 0 < np.count_nonzero(counts) <= _BUDGET.classes:
        return {}
    sets, _ = pack(problem, counts, supply)
    _, pricing = round_budgets(problem.snapshot.work)
    request = PackingRequest(problem, counts, supply)
    generator = Generator(request, interference=False, sets=pricing)
    seeds = [
        generator.column(packed.offering, tuple(sorted(packed.task_set.items()))) for packed in sets
    ]
    generated = generator.run([*_waits(problem, counts, supply), *seeds], _BUDGET)
    if generated is None:
        return {}
    duals_of = [_duals(generated.relaxation, counts, limits, change) for change in (-0.5, 0.5)]
    unit = generated.unit / MILLION
    worth = {
        name: round(unit * sum(duals.get(name, 0.0) for duals in duals_of) / 2) for name in limits
    }
    return {name: Price(amount) for name, amount in sorted(worth.items()) if amount > 0}


def _duals(
    relaxation: Relaxation, counts: Ints, limits: Mapping[OfferingId, int], change: float
) -> Mapping[OfferingId, float]:
    """The duals of the limits if each of them were by so much higher."""
    relaxation.require(counts, {name: most + change for name, most in limits.items()})
    relaxed = relaxation.solve()
    if relaxed is None:
        return {}
    return {name: -rent for name, rent in relaxation.rent_of(relaxed.rents).items()}


def _waits(problem: Problem, counts: Ints, supply: Supply) -> Iterator[Column]:
    """A column for each class that leaves one of its tasks waiting."""
    free = [
        unlimited
        for unlimited in problem.offerings
        if unlimited.id in supply and supply[unlimited.id] is None
    ]
    for number in np.flatnonzero(counts > 0).tolist():
        costs = [
            offering.price + problem.slowness(number, offering.type.family)
            for offering in free
            if problem.hosted(offering.type)[number]
        ]
        least = min(costs) + 1 if costs else 0
        cost = max(_WAITING_COSTS * problem.classes[number].most, least)
        yield Column(_WAITING, ((number, 1),), cost * MILLION)
