"""Reservation price: what a task costs on an instance of its own."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import gcd
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from eva_master.learning.speeds.type_rates import Row, Sheets
from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.catalog import Offering, Purchase, base_family
from eva_master.model.ids import Family, Millis, Price, Workload
from eva_master.model.resources import Resources
from eva_master.packing.interference.incremental import IncrementalView

Demand = tuple[tuple[Family, Resources], ...]
"""Demand per family, as in `TaskSpec.demand`."""
Speeds = tuple[tuple[Family, int], ...]
"""How fast a task runs on each family that it has a demand on, in whole numbers without a common
divisor, sorted by family; empty if it runs at the same speed on all of them."""
Rates = tuple[tuple[Family, int], ...]
"""Standalone iterations per second, in millionths, by family."""
NO_SHEETS: Sheets = MappingProxyType({})
LEAST_PRICE = Price(1)
"""What a node that costs nothing counts as, in micro-dollars per hour: so of two free nodes one is
less than two, and an iteration costs least on the one that is fastest."""
SAME_SPEED = Fraction(1)
"""Of a task that runs equally fast on all of its families."""


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


def rented(offerings: Sequence[Offering]) -> Sequence[Offering]:
    """The offerings that money buys, in the same order: all but the operator's own nodes.

    They say what tasks are worth: a node that costs nothing would else make all work worthless
    that could run on it, whether there is room on it or not.
    """
    if any(offering.purchase is Purchase.OWNED for offering in offerings):
        return [it for it in offerings if it.purchase is not Purchase.OWNED]
    return offerings


class Stated(Protocol):
    """What a user says of a task, see `TaskSpec`."""

    @property
    def demand(self) -> Demand:
        """The stated values, per family."""

    @property
    def throughput(self) -> Rates:
        """The stated values, per family."""


def sheets(offerings: Iterable[Offering]) -> Sheets:
    """What data sheets say of families; of one with unequal GPUs, what they say of the slowest."""
    found: dict[Family, int] = {}
    for offering in offerings:
        if bandwidth := offering.type.gpu_bandwidth:
            family = base_family(offering.type.family)
            found[family] = min(bandwidth, found.get(family, bandwidth))
    return found


def rates(task: Stated, measured: Rates = (), on_sheets: Sheets = NO_SHEETS) -> Rates:
    """A task's standalone throughput on each family that it has a demand on.

    What is stated goes before what was measured. Where neither is known a task on GPUs is expected
    to be as much faster or slower than on the families that are known as data sheets and other
    workloads let expect of their GPUs. If they say nothing, or the number of GPUs differs, it
    counts as no faster than on the slowest of the others, so that a low price alone sends it not to
    where it might crawl.

    Args:
        task: Whose.
        measured: Of its workload; rates of 0 are unknown.
        on_sheets: What is expected of the families, see `TypeSpeeds.of`.

    Returns:
        Empty if nothing is known.
    """
    known = {family: rate for family, rate in (*measured, *task.throughput) if rate > 0}
    # How an instance is paid for makes it no faster.
    machines = [(family, base_family(family), need.gpus) for family, need in task.demand]
    found = [known[machine] for _, machine, _ in machines if machine in known]
    if not found:
        return ()
    if len(found) == len(machines):
        return tuple((family, known[machine]) for family, machine, _ in machines)
    slowest = min(found)
    alike: dict[int, list[int]] = {}
    for machine, gpus in dict.fromkeys((machine, gpus) for _, machine, gpus in machines):
        if gpus and machine in known and machine in on_sheets:
            per_gb = log_ppm(known[machine]) - log_ppm(on_sheets[machine])
            alike.setdefault(gpus, []).append(per_gb)

    def expected(machine: Family, gpus: int) -> int:
        others = alike.get(gpus)
        if not others or machine not in on_sheets:
            return slowest
        return max(1, exp_of_ppm(log_ppm(on_sheets[machine]) + sum(others) // len(others)))

    return tuple(
        (family, known.get(machine) or expected(machine, gpus))
        for family, machine, gpus in machines
    )


def speeds(task: Stated, measured: Rates = (), on_sheets: Sheets = NO_SHEETS) -> Speeds:
    """Compare a task's standalone throughput on its families, see `rates`."""
    return compared(rates(task, measured, on_sheets))


def compared(known: Iterable[tuple[Family, int]]) -> Speeds:
    """Rates without their common divisor; empty if they are all the same."""
    found = tuple(known)
    if len({rate for _, rate in found}) <= 1:
        return ()
    common = gcd(*(rate for _, rate in found))
    return tuple((family, rate // common) for family, rate in found)


def measured_rates_view() -> IncrementalView[Row, Mapping[Workload, Rates]]:
    """Follows a table with the rates of each workload."""
    return IncrementalView[Row, Mapping[Workload, Rates]]({}, _measured)


def _measured(
    before: Mapping[Workload, Rates], rows: tuple[Row, ...], gone: list[Row], new: list[Row]
) -> Mapping[Workload, Rates]:
    """Look at those workloads anew of which rows have changed."""
    found = dict(before)
    for workload in {entry[0] for entry, _ in (*gone, *new)}:
        first = bisect_left(rows, workload, key=_workload)
        last = bisect_right(rows, workload, lo=first, key=_workload)
        found[workload] = tuple((family, rate) for (_, family), rate in rows[first:last])
        if first == last:
            del found[workload]
    return found


def _workload(row: Row) -> Workload:
    return row[0][0]


def counted_price(offering: Offering) -> Price:
    """What an instance counts as where prices are compared, in micro-dollars per hour."""
    return max(offering.price, LEAST_PRICE)


def reservation(
    demand: Demand, offerings: Sequence[Offering], pace: Speeds = (), others: int = 0
) -> Offering | None:
    """Find the offering that sets a task's reservation price (Eva, section 4.2).

    That is the one on which an iteration costs least.

    Args:
        demand: The task's demand per family; each offering is tried with its family's demand.
        offerings: In order of preference, see `cheapest_first`.
        pace: How fast the task runs on each family.
        others: What the rest of its gang costs, which runs at the same pace.

    Returns:
        The offering that hosts the task alone for the least price divided by its speed there, of
        equals the first; `None` if none hosts it.
    """
    first: dict[Family, int] = {}
    for number, offering in enumerate(offerings):
        if offering.type.family not in first and hosts(offering, demand):
            first[offering.type.family] = number
            if not pace:
                return offering
    chosen = _cheapest_iteration(offerings, first, pace, others)
    return None if chosen is None else offerings[chosen]


def worth(
    demand: Demand, offerings: Sequence[Offering], pace: Speeds = (), others: int = 0
) -> Offering | None:
    """The offering that says what a task is worth: the same among those that are rented.

    Only of a task that nothing rented hosts is it an owned node.
    """
    bought = rented(offerings)
    found = reservation(demand, bought, pace, others)
    return found if found or bought is offerings else reservation(demand, offerings, pace, others)


def worths(
    needs: Mapping[Family, npt.NDArray[np.int64]],
    offerings: Sequence[Offering],
    paces: Sequence[Speeds],
    others: Sequence[int],
) -> list[Offering | None]:
    """`worth` of many demands at once; arguments as of `reservations`."""
    bought = rented(offerings)
    found = reservations(needs, bought, paces, others)
    if bought is offerings or None not in found:
        return found
    owned = reservations(needs, offerings, paces, others)
    return [first or last for first, last in zip(found, owned, strict=True)]


def reservations(
    needs: Mapping[Family, npt.NDArray[np.int64]],
    offerings: Sequence[Offering],
    paces: Sequence[Speeds],
    others: Sequence[int],
) -> list[Offering | None]:
    """`reservation` of many demands at once.

    Args:
        needs: Per family, a row per demand: GPUs, milli-CPUs, MiB.
        offerings: Cheapest first.
        paces: Per demand.
        others: Per demand.
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
        if pace:
            hosting = {family: int(first[family][row]) for family, _ in pace if family in first}
            there = {family: number for family, number in hosting.items() if number < none}
            best = _cheapest_iteration(offerings, there, pace, others[row])
            chosen[row] = chosen[row] if best is None else best
    return [None if number == none else offerings[number] for number in chosen]


def _cheapest_iteration(
    offerings: Sequence[Offering], first: Mapping[Family, int], pace: Speeds, others: int
) -> int | None:
    """The offering on which an iteration costs least; of equals the first.

    Args:
        offerings: Cheapest first.
        first: The first of them that hosts the task, by family.
        pace: How fast the task runs on each family.
        others: What the rest of its gang costs.
    """
    options = [
        (Fraction(counted_price(offerings[number]) + others, rate), number)
        for family, rate in pace
        if (number := first.get(family)) is not None
    ]
    return min(options)[1] if options else None


def reservation_price(offering: Offering | None) -> int:
    """The reservation price of tasks whose reservation offering this is (Eva, section 4.2).

    Returns:
        Micro-dollars per hour; 0 if nothing hosts them.
    """
    return 0 if offering is None else offering.price


def relative_speed(family: Family, offering: Offering | None, pace: Speeds) -> Fraction:
    """How fast a task runs on a family against where its reservation price comes from.

    Args:
        family: Where it runs; one that it has no demand on counts as the offering's own.
        offering: The one that sets its reservation price; without one it is as fast everywhere.
        pace: How fast the task runs on each family.
    """
    if not pace or offering is None:
        return SAME_SPEED
    rate = dict(pace)
    own = rate.get(offering.type.family, 1)
    return Fraction(rate.get(family, own), own)


def price_on(
    family: Family,
    offering: Offering | None,
    pace: Speeds,
    charge: int | None = None,
    *,
    split: bool = False,
) -> int:
    """What a task is worth on a family if `offering` sets its reservation price.

    Args:
        family: Where it runs; one that it has no demand on counts as the offering's own.
        offering: See `reservation`.
        pace: How fast the task runs on each family.
        charge: Reservation price of its gang, `None` if it is in none. All of a gang is slowed
            down by a member on a slow family, as it is by one that loses to its neighbours (section
            4.4); a member that is faster than the others gains nothing.
        split: Whether its gang divides batches by speed; then all gain by a faster member.

    Returns:
        Micro-dollars per hour, rounded down; the offering's price on its own family. Of a member
        of a gang it may be negative.
    """
    price, speed = reservation_price(offering), relative_speed(family, offering, pace)
    if charge is None or offering is None:
        return price * speed.numerator // speed.denominator
    speed = speed if split else min(speed, Fraction(1))
    return price - charge + charge * speed.numerator // speed.denominator
