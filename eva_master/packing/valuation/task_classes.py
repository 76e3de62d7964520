"""Classes of identical tasks, and the worth of each.

Results are remembered from round to round, since in a large cluster most tasks were there before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from eva_master.learning.speeds.type_rates import TypeSpeeds
from eva_master.model.catalog import Offering
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.valuation.reservation_price import (
    Demand,
    Rates,
    Speeds,
    price_on,
    reservation_price,
    worth,
    worths,
)
from eva_master.packing.valuation.task_shapes import TaskShape, TaskShapes
from eva_master.packing.valuation.vectors import (
    IMPOSSIBLE,
    NOWHERE,
    WIDTH,
    Vector,
    needs_on,
    vector,
)
from eva_wire.values.ids import MILLION, Family, RunId, Workload

UNKNOWN = Workload("")
"""The workload of all tasks of which nothing was observed."""
_CLASSES_REMEMBERED = 65_536
"""Shapes and classes of which something is remembered from round to round."""


@dataclass(frozen=True, slots=True)
class TaskClass:
    """Tasks that no packing decision can tell apart.

    Attributes:
        demand: Demand per family.
        workload: Workload as seen by their neighbours; empty if no effect of it was observed.
        price: Reservation price in micro-dollars per hour; 0 if no offering hosts them.
        charge: Reservation price of everything that slows down when one of them does: itself,
            or all members of its gang.
        speeds: Speed on each family.
        prices: Worth of running one of them per family that can host them, see
            `reservation_price.price_on`; empty if it is `price` on all of them.
        split: Whether they are in a gang that divides batches by speed.
    """

    demand: Demand
    workload: Workload
    price: int
    charge: int
    speeds: Speeds = ()
    prices: tuple[tuple[Family, int], ...] = ()
    split: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = self.demand, self.workload, self.charge, self.speeds
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        # Classes are looked up far more often than they are made.
        return self._hash

    def price_on(self, family: Family) -> int:
        """Worth of running one of them on a family, in micro-dollars per hour."""
        return next((price for name, price in self.prices if name == family), self.price)

    def charge_on(self, family: Family) -> int:
        """Worth of its gang, or of itself alone, at the pace of one of them on this family."""
        return self.charge + self.price_on(family) - self.price

    def reserved(self, offering: Offering) -> TaskClass:
        """The class if this offering sets its reservation price."""
        price = reservation_price(offering)
        if price == self.price and not self.prices:
            return self
        charge = price + self.others
        gang = charge if self.others else None
        prices = tuple(
            (name, price_on(name, offering, self.speeds, gang, split=self.split))
            for name, _ in self.prices
        )
        return replace(self, price=price, charge=charge, prices=prices)

    @property
    def others(self) -> int:
        """Reservation price of the rest of its gang."""
        return self.charge - self.price

    @property
    def most(self) -> int:
        """Worth of running one of them where it runs fastest, in micro-dollars per hour."""
        return max((price for _, price in self.prices), default=self.price)


class PricedShape:
    """Worth of tasks of a shape at one set of offerings.

    Attributes:
        shape: The shape.
        own: The offering that sets their reservation price: one on sale or, if none on sale hosts
            them, another; `None` if none does.
        sold: Whether that offering is on sale.
        task_class: The class of tasks of this shape alone, of unknown workload.
    """

    def __init__(
        self,
        shape: TaskShape,
        own: Offering | None,
        task_class: TaskClass,
        families: Mapping[Family, int],
        *,
        sold: bool,
    ) -> None:
        self.shape = shape
        self.own = own
        self.sold = sold
        self.task_class = task_class
        self._families = families

    @property
    def price(self) -> int:
        """The reservation price in micro-dollars per hour, 0 if no offering hosts them."""
        return reservation_price(self.own)

    @cached_property
    def need(self) -> Ints:
        """Demand of one of them: a row per family, see `Vector`."""
        need = np.full((len(self._families), WIDTH), IMPOSSIBLE, dtype=np.int64)
        for family, amount in self.shape.demand:
            if family in self._families:
                need[self._families[family]] = vector(amount)
        return need

    @cached_property
    def prices(self) -> tuple[int, ...]:
        """Reservation price times speed on each family, in micro-dollars per hour."""
        part = self.shape.part
        charge = self.price + part.others if part.split else None
        return tuple(
            price_on(family, self.own, part.speeds, charge, split=part.split)
            for family in self._families
        )

    def in_gang(self, workload: Workload, charge: int) -> TaskClass:
        """The class of such tasks that are of this workload and in such a gang."""
        task_class = replace(self.task_class, workload=workload, charge=charge)
        if self.own is None or not task_class.others:
            return task_class
        return task_class.reserved(self.own)


@dataclass(frozen=True, slots=True)
class RankedClass:
    """A class, and what is needed of it in every round.

    Attributes:
        task_class: The class.
        rank: Its place among others.
        needs: Per family.
    """

    task_class: TaskClass
    rank: tuple[object, ...]
    needs: tuple[Vector, ...]


class ShapePrices:
    """Worth of task shapes at one set of offerings, remembered.

    Args:
        offerings: Cheapest first.
        on_sale: Offerings that may be bought, cheapest first.

    Attributes:
        on_sale: Offerings that may be bought, cheapest first.
        families: The number of each family of the offerings, in their order.
        ids_on_sale: The ids of those on sale.
    """

    def __init__(self, offerings: Sequence[Offering], on_sale: Sequence[Offering]) -> None:
        self._offerings, self.on_sale = offerings, tuple(on_sale)
        names = sorted({offering.type.family for offering in offerings})
        self.families: Mapping[Family, int] = {name: number for number, name in enumerate(names)}
        self.ids_on_sale = frozenset(offering.id for offering in on_sale)
        self._rest = [offering for offering in offerings if offering not in on_sale]
        self._priced: dict[TaskShape, PricedShape] = {}
        self._ranked: dict[tuple[TaskShape, Workload, int], RankedClass] = {}
        self._reserved: dict[tuple[Demand, Speeds, int], Offering | None] = {}

    @cached_property
    def unit_price(self) -> Ints:
        """Per resource, the least price of a unit among the offerings on sale.

        The unit is millionths of micro-dollars per hour for a GPU, a milli-CPU, a MiB; 0 if none
        has it.
        """
        least = np.zeros(WIDTH, dtype=np.int64)
        for offering in self.on_sale:
            for resource, amount in enumerate(vector(offering.type.capacity)):
                if amount > 0:
                    each = offering.price * MILLION // amount
                    least[resource] = min(each, least[resource]) if least[resource] else each
        return least

    @cached_property
    def _capacities(self) -> Mapping[Family, Ints]:
        """Capacity of instances of each family: a row per offering."""
        rows: dict[Family, list[Vector]] = {name: [] for name in self.families}
        for offering in self._offerings:
            rows[offering.type.family].append(vector(offering.type.capacity))
        return {name: np.array(sizes, dtype=np.int64) for name, sizes in rows.items()}

    def reservation(self, task_class: TaskClass) -> Offering | None:
        """The offering that sets the reservation price of a class, if it is on sale now."""
        key = task_class.demand, task_class.speeds, task_class.others
        if key not in self._reserved:
            if len(self._reserved) > _CLASSES_REMEMBERED:
                self._reserved.clear()
            demand, pace, others = key
            self._reserved[key] = worth(demand, self.on_sale, pace, others)
        return self._reserved[key]

    def of(self, shape: TaskShape) -> PricedShape:
        """Worth of tasks of one shape."""
        return self._priced.get(shape) or self.priced((shape,))[shape]

    def priced(self, shapes: Sequence[TaskShape]) -> dict[TaskShape, PricedShape]:
        """Worth of tasks of each shape."""
        cached = self._priced
        fresh = [shape for shape in dict.fromkeys(shapes) if shape not in cached]
        if fresh:
            if len(cached) > _CLASSES_REMEMBERED:
                cached = self._priced = {}
                fresh = list(dict.fromkeys(shapes))
            cached.update(zip(fresh, self._prices_of(fresh), strict=True))
        return {shape: cached[shape] for shape in shapes}

    def ranked(self, priced: PricedShape, workload: Workload, charge: int) -> RankedClass:
        """The class of tasks of a shape with this workload and charge."""
        key = priced.shape, workload, charge
        ranked = self._ranked.get(key)
        if ranked is None:
            if len(self._ranked) > _CLASSES_REMEMBERED:
                self._ranked.clear()
            task_class = priced.in_gang(workload, charge)
            demand = tuple((family, vector(need)) for family, need in priced.shape.demand)
            needs, nowhere = dict(demand), NOWHERE
            ranked = self._ranked[key] = RankedClass(
                task_class,
                (demand, workload, charge, task_class.speeds, task_class.split),
                tuple(needs.get(family, nowhere) for family in self.families),
            )
        return ranked

    def _prices_of(self, shapes: Sequence[TaskShape]) -> list[PricedShape]:
        families = self.families
        needs = {
            family: needs_on([shape.demand for shape in shapes], family) for family in families
        }
        paces, others = [s.part.speeds for s in shapes], [s.part.others for s in shapes]
        now = worths(needs, self.on_sale, paces, others)
        later = worths(needs, self._rest, paces, others)
        hosted = {
            name: np.any(np.all(needs[name][:, np.newaxis] <= capacities, axis=2), axis=1)
            for name, capacities in self._capacities.items()
        }
        priced: list[PricedShape] = []
        for row, shape in enumerate(shapes):
            demand, pace = shape.demand, shape.part.speeds
            places = tuple((name, 0) for name, _ in pace if name in hosted and hosted[name][row])
            unpriced = TaskClass(demand, UNKNOWN, 0, 0, pace, places, split=shape.part.split)
            own = now[row] or later[row]
            task_class = unpriced if own is None else unpriced.reserved(own)
            sold = now[row] is not None
            priced.append(PricedShape(shape, own, task_class, families, sold=sold))
        return priced


class SnapshotShapes:
    """The shapes of a snapshot's tasks, each as a task of its own, at the snapshot's prices.

    Args:
        prices: Worth of shapes.
        traits: Shapes of tasks.
        measured: Measured rates of each workload.
        expected: Expected speeds of families.

    Attributes:
        prices: Worth of shapes.
    """

    def __init__(
        self,
        prices: ShapePrices,
        traits: TaskShapes,
        measured: Mapping[Workload, Rates],
        expected: TypeSpeeds,
    ) -> None:
        self.prices = prices
        self._expected = expected
        self._traits = traits
        self._measured = measured
        self._of_run: dict[RunId, PricedShape] = {}

    def of(self, run: RunView) -> PricedShape:
        """The shape of a task run's task."""
        priced = self._of_run.get(run.id)
        if priced is None:
            traits = self._traits.of_run(run)
            measured = self._measured.get(traits.workload, ())
            shape = traits.shape(measured, self._expected.of(traits.workload))
            priced = self._of_run[run.id] = self.prices.of(shape)
        return priced
