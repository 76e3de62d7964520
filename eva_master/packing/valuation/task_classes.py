"""Classes of identical tasks: how tasks are told apart, and what each of them is worth.

What is found out here is remembered from round to round, since in a large cluster most tasks were
there before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from eva_master.model.catalog import Offering
from eva_master.model.ids import Family, Workload
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.valuation.gang_pace import Part
from eva_master.packing.valuation.reservation_price import (
    Demand,
    Rates,
    Speeds,
    compared,
    price_on,
    rates,
    reservation,
    reservation_price,
    reservations,
)
from eva_master.packing.valuation.vectors import IMPOSSIBLE, needs_on, vector

UNKNOWN = Workload("")
"""The workload of all tasks of which nothing was observed."""
_REMEMBERED = 65_536
"""Tasks, and kinds and classes of them, of which something is remembered from round to round."""


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
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = self.demand, self.workload, self.charge, self.speeds
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        # Classes are looked up far more often than they are made.
        return self._hash

    def price_on(self, family: Family) -> int:
        """What running one of them on a family is worth, in micro-dollars per hour."""
        return next((price for name, price in self.prices if name == family), self.price)

    def charge_on(self, family: Family) -> int:
        """What its gang, or it alone, is worth at the pace of one of them on this family."""
        return self.charge + self.price_on(family) - self.price

    def reserved(self, offering: Offering) -> TaskClass:
        """The class if this offering sets its reservation price."""
        price = reservation_price(offering)
        if price == self.price and not self.prices:
            return self
        charge = price + self.others
        gang = charge if self.others else None
        prices = tuple(
            (name, price_on(name, offering, self.speeds, gang)) for name, _ in self.prices
        )
        return replace(self, price=price, charge=charge, prices=prices)

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


class Kind:
    """Tasks that need the same and run as fast. Equal ones are the same object.

    Attributes:
        demand: Per family.
        part: How fast they are of use, and whom they hold up.
    """

    __slots__ = ("demand", "part")

    def __init__(self, demand: Demand, part: Part) -> None:
        self.demand = demand
        self.part = part


class Sort:
    """What packing sees of a task. Equal ones are the same object, so they are told apart fast.

    Args:
        task: A task of this sort.
        kinds: The kinds that are known, by what they are.

    Attributes:
        demand: As in `TaskSpec`, like the others.
        throughput: Stated by the user.
        workload: Of the task.
    """

    __slots__ = ("_kinds", "_paced", "demand", "throughput", "workload")

    def __init__(self, task: TaskSpec, kinds: dict[tuple[Demand, Part], Kind]) -> None:
        self.demand = task.demand
        self.throughput = task.throughput
        self.workload = task.workload
        self._kinds = kinds
        self._paced: tuple[Rates, Rates, Kind] | None = None

    def rates(self, measured: Rates) -> Rates:
        """Its standalone throughput, see `reservation.rates`."""
        return self._at(measured)[1]

    def kind(self, measured: Rates) -> Kind:
        """Its kind by itself, by what was measured of its workload."""
        return self._at(measured)[2]

    def _at(self, measured: Rates) -> tuple[Rates, Rates, Kind]:
        paced = self._paced
        if paced is None or paced[0] != measured:
            found = rates(self, measured)
            paced = self._paced = measured, found, self.as_part(Part(compared(found)))
        return paced

    def as_part(self, part: Part) -> Kind:
        """Its kind as a member of a gang."""
        key = self.demand, part
        return self._kinds.get(key) or self._kinds.setdefault(key, Kind(*key))


class Sorts:
    """Remembers the sort of tasks from round to round."""

    def __init__(self) -> None:
        self._by_task: dict[int, tuple[TaskSpec, Sort]] = {}
        self._known: dict[tuple[Demand, Rates, Workload], Sort] = {}
        self._kinds: dict[tuple[Demand, Part], Kind] = {}

    def of(self, runs: Iterable[RunView]) -> list[Sort]:
        """The sort of each task run's task."""
        if max(len(self._by_task), len(self._known), len(self._kinds)) > _REMEMBERED:
            self._by_task, self._known, self._kinds = {}, {}, {}
        return [self._of(run.task) for run in runs]

    def _of(self, task: TaskSpec) -> Sort:
        found = self._by_task.get(id(task))
        # An id is used again once its task is gone, so the task is kept and compared.
        if found is not None and found[0] is task:
            return found[1]
        key = task.demand, task.throughput, task.workload
        sort = self._known.get(key) or self._known.setdefault(key, Sort(task, self._kinds))
        self._by_task[id(task)] = task, sort
        return sort


SORTS = Sorts()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A class, and what is needed of it in every round.

    Attributes:
        task_class: The class.
        rank: Its place among others.
        needs: Per family: GPUs, milli-CPUs, MiB.
    """

    task_class: TaskClass
    rank: tuple[object, ...]
    needs: tuple[tuple[int, int, int], ...]


class Pricing:
    """Reservation prices of kinds of tasks at one set of offerings; remembers them.

    Args:
        offerings: Cheapest first.
        buyable: Those that are on sale.

    Attributes:
        buyable: Likewise.
        families: Of the offerings, sorted.
        on_sale: The ids of those on sale.
    """

    def __init__(self, offerings: Sequence[Offering], buyable: Sequence[Offering]) -> None:
        self._offerings, self.buyable = offerings, buyable
        self.families = sorted({offering.type.family for offering in offerings})
        self.on_sale = frozenset(offering.id for offering in buyable)
        self._rest = [offering for offering in offerings if offering not in buyable]
        self._known: dict[Kind, Model] = {}
        self._ranked: dict[tuple[Kind, Workload, int], Ranked] = {}
        self._reserved: dict[tuple[Demand, Speeds, int], Offering | None] = {}

    def reservation(self, task_class: TaskClass) -> Offering | None:
        """The offering that sets the reservation price of a class, if it is on sale now."""
        key = task_class.demand, task_class.speeds, task_class.others
        if key not in self._reserved:
            if len(self._reserved) > _REMEMBERED:
                self._reserved.clear()
            demand, pace, others = key
            self._reserved[key] = reservation(demand, self.buyable, pace, others)
        return self._reserved[key]

    def models(self, kinds: Sequence[Kind]) -> dict[Kind, Model]:
        """Tasks of each kind; their workloads and gangs are to be filled in."""
        known = self._known
        fresh = [kind for kind in dict.fromkeys(kinds) if kind not in known]
        if fresh:
            if len(known) > _REMEMBERED:
                known = self._known = {}
                fresh = list(dict.fromkeys(kinds))
            known.update(zip(fresh, self._priced(fresh), strict=True))
        return {kind: known[kind] for kind in kinds}

    def ranked(self, kind: Kind, model: Model, workload: Workload, charge: int) -> Ranked:
        """The class of tasks of a kind that are of this workload and in such a gang."""
        key = kind, workload, charge
        found = self._ranked.get(key)
        if found is None:
            if len(self._ranked) > _REMEMBERED:
                self._ranked.clear()
            task_class = member(*model, workload, charge)
            demand = tuple((family, vector(need)) for family, need in kind.demand)
            needs, nowhere = dict(demand), (IMPOSSIBLE,) * 3
            found = self._ranked[key] = Ranked(
                task_class,
                (demand, workload, charge, task_class.speeds),
                tuple(needs.get(family, nowhere) for family in self.families),
            )
        return found

    def _priced(self, kinds: Sequence[Kind]) -> list[Model]:
        families = self.families
        needs = {family: needs_on([kind.demand for kind in kinds], family) for family in families}
        paces, others = [k.part.speeds for k in kinds], [k.part.others for k in kinds]
        now = reservations(needs, self.buyable, paces, others)
        later = reservations(needs, self._rest, paces, others)
        hosted = {name: np.zeros(len(kinds), dtype=np.bool_) for name in families}
        for offering in self._offerings:
            name = offering.type.family
            hosted[name] |= (needs[name] <= np.array(vector(offering.type.capacity))).all(axis=1)
        found: list[Model] = []
        for row, kind in enumerate(kinds):
            demand, pace = kind.demand, kind.part.speeds
            places = tuple((name, 0) for name, _ in pace if name in hosted and hosted[name][row])
            unpriced = TaskClass(demand, UNKNOWN, 0, 0, pace, places)
            own = now[row] or later[row]
            found.append((unpriced if own is None else unpriced.reserved(own), own))
        return found
