"""Full Reconfiguration (Algorithm 1 of the Eva paper) on classes of identical tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import le

import numpy as np

from eva_master.model.catalog import Offering
from eva_master.packing.greedy.instance_fill import InstanceFill
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.problem import ClassValues, Problem
from eva_master.packing.valuation.vectors import Vector, vector
from eva_wire.values.ids import MILLION, Family, OfferingId

Supply = Mapping[OfferingId, int | None]
"""How many instances of each offering may be used; `None` for no limit."""


@dataclass(frozen=True, slots=True)
class PackedSet:
    """Instances to be filled alike.

    Attributes:
        offering: Of each of them.
        task_set: Of each of them.
        times: How many.
    """

    offering: Offering
    task_set: TaskSet
    times: int


_FLOAT_MARGIN = 0.999
"""Floating point does not err by as much as this falls short of one."""
_TOTAL_CHECKED_UP_TO = 256
"""Classes of which it is worth looking whether they would do together; more would."""


def pack(problem: Problem, counts: Ints, supply: Supply) -> tuple[list[PackedSet], Ints]:
    """Choose instances for tasks: Algorithm 1 of the Eva paper, section 4.2.

    A filled instance is repeated while every class on it lasts, since filling the next one would
    make the same choices. A task is always placed while an offering that hosts it may be used: the
    dearest task that fits its own reservation-price type is worth that type. When limits have used
    up such a type, the remaining tasks are valued at the offerings still on sale, and packed again.

    Args:
        problem: The packing problem, with its classes.
        counts: Tasks to place, per class.
        supply: Instances that may be bought of each offering; an absent offering may not be used.

    Returns:
        The sets, and the tasks that found no place, per class.
    """
    remaining = dict(supply)
    remaining_tasks = counts.copy()
    sets: list[PackedSet] = []
    values = problem.values
    while remaining_tasks.any():
        sets.extend(_pass(problem, values, remaining_tasks, remaining))
        if not remaining_tasks.any():
            break
        on_sale = [o for o in problem.offerings if remaining.get(o.id, 0) != 0]
        values, hosted = problem.values_among(on_sale)
        if not (remaining_tasks[hosted] > 0).any():
            break
    return sets, remaining_tasks


def _pass(
    problem: Problem, values: ClassValues, left: Ints, supply: dict[OfferingId, int | None]
) -> list[PackedSet]:
    """Run Algorithm 1 once; takes what it places from `left` and from `supply`."""
    sets: list[PackedSet] = []
    for name, offering in problem.dearest:
        candidates = problem.hosted(offering.type)
        # On a slow family a member of a gang may be worth less than nothing.
        prices = np.maximum(values.prices[offering.type.family], 0).astype(np.float64)
        while supply.get(name, 0) != 0:
            present = np.flatnonzero(candidates & (left > 0))
            # Neighbours never raise a task's value: if all candidates together are not worth the
            # price, no set of them is.
            if not present.size or (
                present.size < _TOTAL_CHECKED_UP_TO
                and prices[present] @ left[present] < _FLOAT_MARGIN * offering.price
            ):
                break
            fill = _fill(problem, values, offering, left, present)
            if not fill.added or fill.value < offering.price * MILLION:
                break
            chosen = smallest(problem, fill.added, supply, offering) or offering
            times = min(int(left[number]) // count for number, count in fill.added.items())
            available = supply[chosen.id]
            if available is not None:
                times = min(times, available)
                supply[chosen.id] = available - times
            for number, count in fill.added.items():
                left[number] -= times * count
            sets.append(PackedSet(chosen, fill.added, times))
    return sets


def _fill(
    problem: Problem, values: ClassValues, offering: Offering, left: Ints, candidates: Ints
) -> InstanceFill:
    available = left.copy()
    fill = InstanceFill(problem, values, offering.type, candidates)
    while (choice := fill.best(available)) is not None:
        fill.add(*choice)
        available[choice[0]] -= 1
    return fill


def smallest(
    problem: Problem, task_set: TaskSet, supply: Supply, offering: Offering
) -> Offering | None:
    """The offering on which a set costs least, if that is less than on its present one.

    Args:
        problem: The packing problem, with its classes.
        task_set: The set.
        supply: Instances that may be bought of each offering.
        offering: The set's present offering.

    Returns:
        The offering of the least price and throughput lost, of equals the first by price and id.
    """
    needs: dict[Family, Vector] = {}
    best, choice = _cost(problem, task_set, offering), None
    for name, candidate in problem.by_id.items():
        # With equal speeds everywhere, price decides and the first that fits is cheapest.
        if problem.uniform and (choice is not None or candidate.price >= offering.price):
            break
        if supply.get(name, 0) == 0:
            continue
        family = candidate.type.family
        if family not in needs:
            needs[family] = problem.total(family, task_set)
        if all(map(le, needs[family], vector(candidate.type.capacity))):
            cost = _cost(problem, task_set, candidate)
            if cost < best:
                best, choice = cost, candidate
    return choice


def _cost(problem: Problem, task_set: TaskSet, offering: Offering) -> int:
    """As `lp.columns.Column.cost`, as far as it depends on the offering."""
    if problem.uniform:
        return offering.price
    return offering.price * MILLION - problem.value(task_set, offering.type.family)
