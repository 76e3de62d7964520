"""Reservation price: what a task costs on an instance of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import gcd

import numpy as np
import numpy.typing as npt

from eva_master.model.catalog import Offering
from eva_master.model.ids import Family, Millis
from eva_master.model.job import TaskSpec
from eva_master.model.resources import Resources

Demand = tuple[tuple[Family, Resources], ...]
"""Demand per family, as in `TaskSpec.demand`."""
Speeds = tuple[tuple[Family, int], ...]
"""How fast a task runs on each family that it has a demand on, in whole numbers without a common
divisor, sorted by family; empty if it runs at the same speed on all of them."""


def cheapest_first(offerings: Iterable[Offering]) -> tuple[Offering, ...]:
    """Sort offerings by price; equal prices by offering id."""
    return tuple(sorted(offerings, key=lambda offering: (offering.price, offering.id)))


def purchasable(offering: Offering, now: Millis) -> bool:
    """Whether at least one instance of the offering may exist and may be launched now."""
    return offering.available(now) and offering.limit != 0


def hosts(offering: Offering, demand: Demand) -> bool:
    """Whether an empty instance of the offering holds a task with this demand."""
    family = offering.type.family
    need = next((need for name, need in demand if name == family), None)
    return need is not None and need.fits(offering.type.capacity)


def speeds(task: TaskSpec) -> Speeds:
    """Compare a task's standalone throughput on its families.

    On a family of which nothing is known it counts as no faster than on the slowest of the
    others, so that a low price alone sends no task to where it might crawl.
    """
    known = dict(task.throughput)
    stated = [known[family] for family, _ in task.demand if known.get(family, 0) > 0]
    slowest = min(stated, default=1)
    if all(rate == slowest for rate in stated):
        return ()
    common = gcd(*stated)
    return tuple(
        (family, (known[family] if known.get(family, 0) > 0 else slowest) // common)
        for family, _ in task.demand
    )


def reservation(
    demand: Demand, offerings: Sequence[Offering], pace: Speeds = ()
) -> Offering | None:
    """Find the offering that sets a task's reservation price: the least for an iteration.

    Args:
        demand: The task's demand per family; each offering is tried with its family's demand.
        offerings: In order of preference, see `cheapest_first`.
        pace: How fast the task runs on each family.

    Returns:
        The offering that hosts the task alone for the least price divided by its speed there, of
        equals the first; `None` if none hosts it.
    """
    hosting = (offering for offering in offerings if hosts(offering, demand))
    if not pace:
        return next(hosting, None)
    rate = dict(pace)
    return min(hosting, key=lambda o: Fraction(o.price, rate[o.type.family]), default=None)


def reservations(
    needs: Mapping[Family, npt.NDArray[np.int64]],
    offerings: Sequence[Offering],
    paces: Sequence[Speeds],
) -> list[Offering | None]:
    """`reservation` of many demands at once.

    Args:
        needs: Per family, a row per demand: GPUs, milli-CPUs, MiB.
        offerings: Cheapest first.
        paces: Per demand.
    """
    none = len(offerings)
    first = {family: np.full(len(paces), none, dtype=np.int64) for family in needs}
    for number, offering in enumerate(offerings):
        size = offering.type.capacity
        capacity = np.array((size.gpus, size.milli_cpus, size.memory_mib), dtype=np.int64)
        family = offering.type.family
        fits = (needs[family] <= capacity).all(axis=1)
        first[family][fits & (first[family] == none)] = number
    found = np.full(len(paces), none, dtype=np.int64)
    for numbers in first.values():
        found = np.minimum(found, numbers)
    chosen = found.tolist()
    for row, pace in enumerate(paces):
        options = [
            (Fraction(offerings[number].price, rate), number)
            for family, rate in pace
            if family in first and (number := int(first[family][row])) < none
        ]
        if options:
            chosen[row] = min(options)[1]
    return [None if number == none else offerings[number] for number in chosen]


def price_on(family: Family, offering: Offering | None, pace: Speeds) -> int:
    """What a task is worth on a family if `offering` sets its reservation price.

    Args:
        family: Where it runs; one that it has no demand on counts as the offering's own.
        offering: See `reservation`.
        pace: How fast the task runs on each family.

    Returns:
        Micro-dollars per hour, rounded down; the offering's price on its own family.
    """
    if offering is None:
        return 0
    rate = dict(pace)
    own = rate.get(offering.type.family, 1)
    return offering.price * rate.get(family, own) // own
