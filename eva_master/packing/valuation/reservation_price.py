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
from eva_master.model.resources import Resources
from eva_master.packing.incremental.view import IncrementalView
from eva_wire.values.ids import Family, Millis, Price, Workload

Demand = tuple[tuple[Family, Resources], ...]
"""Demand per family, as in `TaskSpec.demand`."""
Speeds = tuple[tuple[Family, int], ...]
"""Speed of a task on each family that it has a demand on, in whole numbers without a common
divisor, sorted by family; empty if it runs at equal speed on all of them.
"""
Rates = tuple[tuple[Family, int], ...]
"""Standalone iterations per second, in millionths, by family."""
NO_SHEETS: Sheets = MappingProxyType({})
LEAST_PRICE = Price(1)
"""Counted price of a free node, in micro-dollars per hour: so one free node is less than two, and
an iteration costs least on the fastest.
"""
SAME_SPEED = Fraction(1)
"""Speed of a task that runs equally fast on all of its families."""


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

    Tasks are valued at these: a free node would otherwise make all work worthless that could run on
    it, even without room on it.
    """
    if any(offering.purchase is Purchase.OWNED for offering in offerings):
        return [offering for offering in offerings if offering.purchase is not Purchase.OWNED]
    return offerings


class TaskStatements(Protocol):
    """Statements of a user about a task, see `TaskSpec`."""

    @property
    def demand(self) -> Demand:
        """The stated values, per family."""

    @property
    def throughput(self) -> Rates:
        """The stated values, per family."""


def sheets(offerings: Iterable[Offering]) -> Sheets:
    """Memory bandwidth of families by data sheets; for unequal GPUs, that of the slowest."""
    bandwidths: dict[Family, int] = {}
    for offering in offerings:
        if bandwidth := offering.type.gpu_bandwidth:
            family = base_family(offering.type.family)
            bandwidths[family] = min(bandwidth, bandwidths.get(family, bandwidth))
    return bandwidths


def rates(task: TaskStatements, measured: Rates = (), on_sheets: Sheets = NO_SHEETS) -> Rates:
    """A task's standalone throughput on each family that it has a demand on.

    Stated rates take precedence over measured ones. Where neither is known, a task on GPUs is
    scaled from the known families, by data sheets and other workloads' rates. If these say nothing,
    or the number of GPUs differs, the slowest known rate is assumed, so that a low price alone does
    not attract the task to a slow family.

    Args:
        task: The task.
        measured: Measured rates of its workload; rates of 0 are unknown.
        on_sheets: Expected speeds of the families, see `TypeSpeeds.of`.

    Returns:
        Rates by family; empty if none is known.
    """
    rate_on = {family: rate for family, rate in (*measured, *task.throughput) if rate > 0}
    # Spot and on-demand instances are equally fast.
    machines = [(family, base_family(family), need.gpus) for family, need in task.demand]
    own_rates = [rate_on[machine] for _, machine, _ in machines if machine in rate_on]
    if not own_rates:
        return ()
    if len(own_rates) == len(machines):
        return tuple((family, rate_on[machine]) for family, machine, _ in machines)
    slowest = min(own_rates)
    alike: dict[int, list[int]] = {}
    for machine, gpus in dict.fromkeys((machine, gpus) for _, machine, gpus in machines):
        if gpus and machine in rate_on and machine in on_sheets:
            per_gb = log_ppm(rate_on[machine]) - log_ppm(on_sheets[machine])
            alike.setdefault(gpus, []).append(per_gb)

    def expected(machine: Family, gpus: int) -> int:
        others = alike.get(gpus)
        if not others or machine not in on_sheets:
            return slowest
        return max(1, exp_of_ppm(log_ppm(on_sheets[machine]) + sum(others) // len(others)))

    return tuple(
        (family, rate_on.get(machine) or expected(machine, gpus))
        for family, machine, gpus in machines
    )


def compared(known: Iterable[tuple[Family, int]]) -> Speeds:
    """Rates without their common divisor; empty if they are all the same."""
    rows = tuple(known)
    if len({rate for _, rate in rows}) <= 1:
        return ()
    common = gcd(*(rate for _, rate in rows))
    return tuple((family, rate // common) for family, rate in rows)


def measured_rates_view() -> IncrementalView[Row, Mapping[Workload, Rates]]:
    """Follows a table with the rates of each workload."""
    return IncrementalView[Row, Mapping[Workload, Rates]]({}, _measured)


def _measured(
    before: Mapping[Workload, Rates], rows: tuple[Row, ...], gone: list[Row], new: list[Row]
) -> Mapping[Workload, Rates]:
    """Update the workloads whose rows have changed."""
    by_workload = dict(before)
    for workload in {entry[0] for entry, _ in (*gone, *new)}:
        first = bisect_left(rows, workload, key=_workload)
        last = bisect_right(rows, workload, lo=first, key=_workload)
        by_workload[workload] = tuple((family, rate) for (_, family), rate in rows[first:last])
        if first == last:
            del by_workload[workload]
    return by_workload


def _workload(row: Row) -> Workload:
    return row[0][0]


def counted_price(offering: Offering) -> Price:
    """Price of an instance for comparisons, in micro-dollars per hour."""
    return max(offering.price, LEAST_PRICE)


def reservation(
    demand: Demand, offerings: Sequence[Offering], pace: Speeds = (), others: int = 0
) -> Offering | None:
    """Find the offering that sets a task's reservation price (Eva, section 4.2).

    The price is that of the offering on which an iteration costs least.

    Args:
        demand: The task's demand per family; each offering is tried with its family's demand.
        offerings: In order of preference, see `cheapest_first`.
        pace: Speed of the task on each family.
        others: Price of the rest of its gang, which runs at the same pace.

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
    """The offering that sets a task's worth: `reservation` among rented offerings.

    An owned node sets it only for a task that no rented offering hosts.
    """
    bought = rented(offerings)
    choice = reservation(demand, bought, pace, others)
    return choice if choice or bought is offerings else reservation(demand, offerings, pace, others)


def worths(
    needs: Mapping[Family, npt.NDArray[np.int64]],
    offerings: Sequence[Offering],
    paces: Sequence[Speeds],
    others: Sequence[int],
) -> list[Offering | None]:
    """`worth` of many demands at once; arguments are as for `reservations`."""
    bought = rented(offerings)
    choices = reservations(needs, bought, paces, others)
    if bought is offerings or None not in choices:
        return choices
    owned = reservations(needs, offerings, paces, others)
    return [first or last for first, last in zip(choices, owned, strict=True)]


def reservations(
    needs: Mapping[Family, npt.NDArray[np.int64]],
    offerings: Sequence[Offering],
    paces: Sequence[Speeds],
    others: Sequence[int],
) -> list[Offering | None]:
    """`reservation` of many demands at once.

    Args:
        needs: Per family, a row per demand, see `Vector`.
        offerings: Cheapest first.
        paces: Speeds per demand.
        others: Price of the rest of the gang, per demand.
    """
    none = len(offerings)
    first = {family: np.full(len(paces), none, dtype=np.int64) for family in needs}
    for number, offering in enumerate(offerings):
        size, family = offering.type.capacity, offering.type.family
        amounts = size.gpus, size.milli_cpus, size.memory_mib, size.disk_mib
        capacity = np.array(amounts[: needs[family].shape[1]], dtype=np.int64)
        fits = (needs[family] <= capacity).all(axis=1)
        first[family][fits & (first[family] == none)] = number
    lowest = np.full(len(paces), none, dtype=np.int64)
    for numbers in first.values():
        lowest = np.minimum(lowest, numbers)
    chosen = lowest.tolist()
    for row, pace in enumerate(paces):
        if pace:
            hosting = {family: int(first[family][row]) for family, _ in pace if family in first}
            hosts_by_family = {
                family: number for family, number in hosting.items() if number < none
            }
            best = _cheapest_iteration(offerings, hosts_by_family, pace, others[row])
            chosen[row] = chosen[row] if best is None else best
    return [None if number == none else offerings[number] for number in chosen]


def _cheapest_iteration(
    offerings: Sequence[Offering], first: Mapping[Family, int], pace: Speeds, others: int
) -> int | None:
    """The offering on which an iteration costs least; of equals the first.

    Args:
        offerings: Cheapest first.
        first: The first of them that hosts the task, by family.
        pace: Speed of the task on each family.
        others: Price of the rest of its gang.
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
    """Worth of a task on a family if `offering` sets its reservation price.

    Args:
        family: The family where it runs; one that it has no demand on counts as the offering's own.
        offering: See `reservation`.
        pace: Speed of the task on each family.
        charge: Reservation price of its gang, `None` if it is in none. All of a gang is slowed down
            by a member on a slow family, as it is by one that loses to its neighbours (section
            4.4); a member that is faster than the others gains nothing.
        split: Whether its gang divides batches by speed; then all gain by a faster member.

    Returns:
        Micro-dollars per hour, rounded down; the offering's price on its own family. For a member
        of a gang it may be negative.
    """
    price, speed = reservation_price(offering), relative_speed(family, offering, pace)
    if charge is None or offering is None:
        return price * speed.numerator // speed.denominator
    speed = speed if split else min(speed, Fraction(1))
    return price - charge + charge * speed.numerator // speed.denominator
