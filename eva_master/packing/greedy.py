"""Full Reconfiguration (Algorithm 1 of the Eva paper) on classes of identical tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import le

import numpy as np

from eva_master.model.catalog import Offering
from eva_master.model.ids import MILLION, Family, OfferingId
from eva_master.packing.colocation import Ints
from eva_master.packing.filling import Filling
from eva_master.packing.problem import Contents, Problem, Worth, vector

Supply = Mapping[OfferingId, int | None]
"""How many instances of each offering may be used; `None` for no limit."""


@dataclass(frozen=True, slots=True)
class PackedSet:
    """Instances to be filled alike.

    Attributes:
        offering: Of each of them.
        contents: Of each of them.
        times: How many.
    """

    offering: Offering
    contents: Contents
    times: int


def pack(problem: Problem, counts: Ints, supply: Supply) -> tuple[list[PackedSet], Ints]:
    """Choose instances for tasks.

    A filled instance is repeated as often as every class on it lasts: while that is so, filling
    the next one would make the very same choices. A task is always placed as long as an offering
    that hosts it may be used: the dearest task that fits its own reservation-price type is worth
    that type. When limits have used up such a type, the tasks that are left are valued at what
    is still on sale, and packed again.

    Args:
        problem: The classes.
        counts: Tasks to place, per class.
        supply: An offering that is absent may not be used.

    Returns:
        The sets, and the tasks that found no place, per class.
    """
    remaining = dict(supply)
    left = counts.copy()
    sets: list[PackedSet] = []
    worth = problem.worth
    while True:
        sets.extend(_pass(problem, worth, left, remaining))
        on_sale = [o for o in problem.offerings if remaining.get(o.id, 0) != 0]
        worth, hosted = problem.worth_among(on_sale)
        if not (left[hosted] > 0).any():
            return sets, left


def _pass(
    problem: Problem, worth: Worth, left: Ints, supply: dict[OfferingId, int | None]
) -> list[PackedSet]:
    """Run Algorithm 1 once; takes what it places from `left` and from `supply`."""
    sets: list[PackedSet] = []
    # Dearest first; equal prices by offering id.
    for offering in sorted(problem.offerings, key=lambda o: (-o.price, o.id)):
        while supply.get(offering.id, 0) != 0:
            filling = _fill(problem, worth, offering, left)
            if not filling.added or filling.value < offering.price * MILLION:
                break
            chosen = _downsized(problem, offering, filling.added, supply)
            times = min(int(left[number]) // count for number, count in filling.added.items())
            available = supply[chosen.id]
            if available is not None:
                times = min(times, available)
                supply[chosen.id] = available - times
            for number, count in filling.added.items():
                left[number] -= times * count
            sets.append(PackedSet(chosen, filling.added, times))
    return sets


def _fill(problem: Problem, worth: Worth, offering: Offering, left: Ints) -> Filling:
    available = left.copy()
    filling = Filling(problem, worth, offering.type, np.flatnonzero(available > 0))
    while (choice := filling.best(available)) is not None:
        filling.add(*choice)
        available[choice[0]] -= 1
    return filling


def _downsized(
    problem: Problem, offering: Offering, contents: Contents, supply: Supply
) -> Offering:
    """The cheapest offering that holds the same set, `offering` itself if none is cheaper."""
    return smallest(problem, contents, supply, below=offering.price) or offering


def smallest(problem: Problem, contents: Contents, supply: Supply, below: int) -> Offering | None:
    """The cheapest offering that holds a set and costs less than `below`.

    Args:
        problem: The classes.
        contents: The set.
        supply: What may be used.
        below: Micro-dollars per hour.
    """
    needs: dict[Family, tuple[int, int, int]] = {}
    for offering in problem.offerings:
        if offering.price >= below:
            return None
        if supply.get(offering.id, 0) != 0:
            family = offering.type.family
            if family not in needs:
                needs[family] = problem.total(family, contents)
            if all(map(le, needs[family], vector(offering.type.capacity))):
                return offering
    return None
