"""Classes of identical tasks: how tasks are told apart, and what each of them is worth.

What is found out here is remembered from round to round, since in a large cluster most tasks were
there before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from eva_master.model.catalog import Offering
from eva_master.model.ids import Family, Workload
from eva_master.model.job import TaskSpec
from eva_master.model.snapshot import CopyView
from eva_master.packing.demands import needs_on, vector
from eva_master.packing.gangs import Part
from eva_master.packing.reservation import (
    Demand,
    Rates,
    Speeds,
    price_on,
    reservation,
    reservations,
)

UNKNOWN = Workload("")
"""The workload of all tasks of which nothing was observed."""
_REMEMBERED = 65_536
"""Tasks, and kinds of them, of which something is remembered from round to round."""

Kind = tuple[Demand, Part]


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Tasks that no packing decision can tell apart.

    Attributes:
        demand: Per family.
        workload: What they are to their neighbours; empty if nothing was observed of it.
        price: Reservation price in micro-dollars per hour; 0 if nothing can host them.
        charge: Reservation price of everything that slows down when one of them does: itself,
            or all members of its gang.
        speeds: How fast they run on each family.
        prices: What running one of them is worth per family that can host them, see
            `reservation.price_on`; empty if it is `price` on all of them.
    """

    demand: Demand
    workload: Workload
    price: int
    charge: int
    speeds: Speeds = ()
    prices: tuple[tuple[Family, int], ...] = ()

    def price_on(self, family: Family) -> int:
        """What running one of them on a family is worth, in micro-dollars per hour."""
        return next((price for name, price in self.prices if name == family), self.price)

    def charge_on(self, family: Family) -> int:
        """What its gang, or it alone, is worth at the pace of one of them on this family."""
        return self.charge + self.price_on(family) - self.price

    def reserved(self, offering: Offering) -> TaskClass:
        """The class if this offering sets its reservation price."""
        if offering.price == self.price and not self.prices:
            return self
        charge = offering.price + self.others
        gang = charge if self.others else None
        prices = tuple(
            (name, price_on(name, offering, self.speeds, gang)) for name, _ in self.prices
        )
        return replace(self, price=offering.price, charge=charge, prices=prices)

    @property
    def others(self) -> int:
        """Reservation price of the rest of its gang."""
        return self.charge - self.price

    @property
    def most(self) -> int:
        """What running one of them is worth where it runs fastest, in micro-dollars per hour."""
        return max((price for _, price in self.prices), default=self.price)


Model = tuple[TaskClass, Offering | None]
"""Tasks of a kind, and the offering that sets their reservation price."""


def member(model: TaskClass, own: Offering | None, workload: Workload, charge: int) -> TaskClass:
    """The class of tasks of a kind that are of this workload and in such a gang."""
    task_class = replace(model, workload=workload, charge=charge)
    return task_class if own is None or not task_class.others else task_class.reserved(own)


class Sort:
    """What packing sees of a task. Equal ones are the same object, so they are told apart fast.

    Attributes:
        demand: As in `TaskSpec`, like the others.
        throughput: Stated by the user.
        workload: Of the task.
    """

    __slots__ = ("demand", "throughput", "workload")

    def __init__(self, task: TaskSpec) -> None:
        self.demand = task.demand
        self.throughput = task.throughput
        self.workload = task.workload


class Sorts:
    """Remembers the sort of tasks from round to round."""

    def __init__(self) -> None:
        self._by_task: dict[int, tuple[TaskSpec, Sort]] = {}
        self._known: dict[tuple[Demand, Rates, Workload], Sort] = {}

    def of(self, copies: Iterable[CopyView]) -> list[Sort]:
        """The sort of each copy's task."""
        if max(len(self._by_task), len(self._known)) > _REMEMBERED:
            self._by_task, self._known = {}, {}
        return [self._of(copy.task) for copy in copies]

    def _of(self, task: TaskSpec) -> Sort:
        found = self._by_task.get(id(task))
        # An id is used again once its task is gone, so the task is kept and compared.
        if found is not None and found[0] is task:
            return found[1]
        key = task.demand, task.throughput, task.workload
        sort = self._known.get(key) or self._known.setdefault(key, Sort(task))
        self._by_task[id(task)] = task, sort
        return sort


SORTS = Sorts()


class Pricing:
    """Reservation prices of kinds of tasks at one set of offerings; remembers them."""

    def __init__(self, offerings: Sequence[Offering], buyable: Sequence[Offering]) -> None:
        self._offerings, self._buyable = offerings, buyable
        self._rest = [offering for offering in offerings if offering not in buyable]
        self._known: dict[Kind, Model] = {}
        self._reserved: dict[tuple[Demand, Speeds, int], Offering | None] = {}

    def reservation(self, task_class: TaskClass) -> Offering | None:
        """The offering that sets the reservation price of a class, if it is on sale now."""
        key = task_class.demand, task_class.speeds, task_class.others
        if key not in self._reserved:
            if len(self._reserved) > _REMEMBERED:
                self._reserved.clear()
            demand, pace, others = key
            self._reserved[key] = reservation(demand, self._buyable, pace, others)
        return self._reserved[key]

    def models(self, kinds: Sequence[Kind], families: Sequence[Family]) -> list[Model]:
        """Tasks of each kind; their workloads and gangs are to be filled in."""
        known = self._known
        fresh = [kind for kind in kinds if kind not in known]
        if fresh:
            if len(known) > _REMEMBERED:
                known = self._known = {}
                fresh = list(kinds)
            known.update(zip(fresh, self._priced(fresh, families), strict=True))
        return [known[kind] for kind in kinds]

    def _priced(self, kinds: Sequence[Kind], families: Sequence[Family]) -> list[Model]:
        needs = {family: needs_on([demand for demand, _ in kinds], family) for family in families}
        paces, others = [part.speeds for _, part in kinds], [part.others for _, part in kinds]
        now = reservations(needs, self._buyable, paces, others)
        later = reservations(needs, self._rest, paces, others)
        hosted = {name: np.zeros(len(kinds), dtype=np.bool_) for name in families}
        for offering in self._offerings:
            name = offering.type.family
            hosted[name] |= (needs[name] <= np.array(vector(offering.type.capacity))).all(axis=1)
        found: list[Model] = []
        for row, (demand, part) in enumerate(kinds):
            pace = part.speeds
            places = tuple((name, 0) for name, _ in pace if name in hosted and hosted[name][row])
            unpriced = TaskClass(demand, UNKNOWN, 0, 0, pace, places)
            own = now[row] or later[row]
            found.append((unpriced if own is None else unpriced.reserved(own), own))
        return found


@lru_cache(maxsize=4)
def pricing(offerings: tuple[Offering, ...], buyable: tuple[Offering, ...]) -> Pricing:
    """Prices are the same from round to round, until the cloud says otherwise."""
    return Pricing(offerings, buyable)
