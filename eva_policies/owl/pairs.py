"""Which two tasks may share an instance, on what, and how well that pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.learning.colocation import Key, recorded
from eva_master.learning.voices.names import split
from eva_master.model.catalog import Offering
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.interference.throughput import ExactThroughput, Ints, multiset
from eva_master.packing.valuation.reservation_price import Demand, Speeds
from eva_master.packing.valuation.task_classes import PricedShape, ShapePrices
from eva_master.packing.valuation.vectors import WIDTH, vector
from eva_wire.values.ids import MILLION, Workload, base_of

Beside = Callable[[Workload, Workload], int | None]
"""Throughput of a workload beside one task of another, in millionths; `None` if unknown."""

ClassKey = tuple[Demand, Speeds, Workload, int]
"""Identity of a class: needs, speeds, workload, and the price of the gang's other members."""


class Profile:
    """Pairwise throughput measured beforehand.

    Args:
        entries: See `Config.profile`.
    """

    def __init__(self, entries: Sequence[tuple[str, str, int]]) -> None:
        self._known = {(Workload(first), Workload(other)): ppm for first, other, ppm in entries}

    def __call__(self, one: Workload, other: Workload) -> int | None:
        """Throughput of `one` beside `other`: by name, or by their base workloads.

        An operator measured it, so it holds for workloads of all owners.
        """
        one, other = split(one)[0], split(other)[0]
        named = self._known.get((one, other))
        return self._known.get((base_of(one), base_of(other))) if named is None else named


def throughput_of(beside: Beside) -> ExactThroughput:
    """The throughput of any task set by pairs alone; a pair that is not known does no harm."""

    def look_up(entry: Key) -> int | None:
        workload, others = entry
        return beside(workload, others[0]) if len(others) == 1 else None

    return ExactThroughput(look_up, MILLION)


def seen(table: ThroughputTable) -> Beside:
    """Pairwise throughput that the cluster has observed so far."""
    return lambda one, other: recorded(table, (one, (other,)))


@dataclass(frozen=True, slots=True, eq=False)
class Class:
    """Tasks that are alike to every partner."""

    number: int
    key: ClassKey
    priced: PricedShape
    workload: Workload
    others: int

    def value(self, family: int, ppm: int) -> int:
        """TNRP at a throughput, in millionths of micro-dollars per hour."""
        worth = self.priced.prices[family]
        return worth * MILLION - (MILLION - ppm) * (worth + self.others)


class Pairs:
    """Every pair of classes, computed when a class is first met.

    Args:
        prices: Prices of the offerings on sale.
        beside: The profile.
        least_ppm: Lower limit of the throughput of both members of a pair.

    Attributes:
        throughput: Speeds of tasks together, by the profile.
    """

    def __init__(self, prices: ShapePrices, beside: Beside, least_ppm: int) -> None:
        self._sale = prices.on_sale
        self._families = prices.families
        self._family = np.array(
            [prices.families[offering.type.family] for offering in self._sale], dtype=np.int64
        )
        self._capacity = np.array(
            [vector(offering.type.capacity) for offering in self._sale], dtype=np.int64
        ).reshape(-1, WIDTH)
        self._beside = beside
        self.throughput = throughput_of(beside)
        self._least_ppm = least_ppm
        self._classes: dict[ClassKey, Class] = {}
        self._all: list[Class] = []
        self._ratio = np.zeros((0, 0), dtype=np.int64)
        self._offering = np.zeros((0, 0), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._all)

    def of(self, priced: PricedShape, workload: Workload, others: int) -> Class:
        """The class of a task.

        Args:
            priced: Demand and prices of its shape.
            workload: Its workload as seen by its neighbours.
            others: Reservation price of the other members of its gang.
        """
        key = priced.shape.demand, priced.shape.part.speeds, workload, others
        task_class = self._classes.get(key)
        if task_class is None:
            task_class = self._classes[key] = Class(len(self._all), key, priced, workload, others)
            self._all.append(task_class)
        return task_class

    def worthwhile(self, present: Sequence[Class]) -> list[tuple[Class, Class, Offering]]:
        """Pairs that are worth more than their instance costs, the best first.

        The best is the one with the largest ratio of TNRP to the price of the cheapest offering
        that holds both; of equals the dearer one, then by the classes' keys.

        Args:
            present: The classes to pair, each once.
        """
        if not self._sale:
            return []
        self._complete()
        order = sorted(present, key=lambda one: one.key)
        numbers = np.array([task_class.number for task_class in order], dtype=np.int64)
        ratio = np.triu(self._ratio[np.ix_(numbers, numbers)])
        first, second = np.nonzero(ratio)
        offering = self._offering[numbers[first], numbers[second]]
        price = np.array([offering.price for offering in self._sale], dtype=np.int64)[offering]
        best = np.lexsort((second, first, -price, -ratio[first, second]))
        return [
            (order[first_number], order[other], self._sale[what])
            for first_number, other, what in zip(
                first[best].tolist(), second[best].tolist(), offering[best].tolist(), strict=True
            )
        ]

    def another(self, one: Class, other: Class, sale: Sequence[Offering]) -> Offering | None:
        """The first of some offerings that holds a pair and costs less than it is worth."""
        for offering in sale:
            family = self._families[offering.type.family]
            need = one.priced.need[family] + other.priced.need[family]
            fits = bool((need <= np.array(vector(offering.type.capacity))).all())
            if fits and self.value(one, other, family) > offering.price * MILLION:
                return offering
        return None

    def value(self, one: Class, other: Class, family: int) -> int:
        """TNRP of a pair, in millionths of micro-dollars per hour; 0 if it is none."""
        ppm = self._throughputs(one, other)
        return 0 if ppm is None else one.value(family, ppm[0]) + other.value(family, ppm[1])

    def _throughputs(self, one: Class, other: Class) -> tuple[int, int] | None:
        throughputs = (
            self._beside(one.workload, other.workload),
            self._beside(other.workload, one.workload),
        )
        if None in throughputs:
            return None
        model = self.throughput
        first, second = model.number(one.workload), model.number(other.workload)
        ppm = model.by_workload(multiset((first, second)))
        if min(ppm.values()) < self._least_ppm:
            return None
        return ppm[first], ppm[second]

    def _complete(self) -> None:
        """Compute the pairs with new classes."""
        size, old_size = len(self._all), len(self._ratio)
        if size == old_size:
            return
        for name in ("_ratio", "_offering"):
            grown = np.zeros((size, size), dtype=np.int64)
            grown[:old_size, :old_size] = getattr(self, name)
            setattr(self, name, grown)
        need: Ints = np.array([task_class.priced.need[self._family] for task_class in self._all])
        for fresh in self._all[old_size:]:
            # Partners in rows, offerings in columns, resources last.
            fits = np.all(need[: fresh.number + 1] + need[fresh.number] <= self._capacity, axis=2)
            for number in np.flatnonzero(fits.any(axis=1)).tolist():
                what = int(fits[number].argmax())
                ratio = self._paying(fresh, self._all[number], what)
                self._ratio[fresh.number, number] = self._ratio[number, fresh.number] = ratio
                self._offering[fresh.number, number] = self._offering[number, fresh.number] = what

    def _paying(self, one: Class, other: Class, what: int) -> int:
        """TNRP in millionths of the price; 0 if it is not more than the price."""
        price = self._sale[what].price
        value = self.value(one, other, int(self._family[what]))
        return value // max(1, price) if value > price * MILLION else 0
