"""What tasks need on each family and what running them is worth, remembered between rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eva_master.model.catalog import Offering
from eva_master.model.ids import Family
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.valuation.reservation_price import (
    Demand,
    Speeds,
    cheapest_first,
    measured_rates,
    price_on,
    purchasable,
    reservation,
    reservation_price,
    speeds,
)
from eva_master.packing.valuation.vectors import IMPOSSIBLE, vector

_NONE = StandaloneRates()
_MOST = 65_536
"""Tasks that are remembered; a cluster's life is longer than any memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Tasks that need the same and run at the same speeds.

    Attributes:
        demand: Per family.
        pace: How fast they run on each family.
        own: The offering that sets their reservation price: of those on sale or, if none of them
            hosts one, of the others; `None` if none does.
        sold: Whether that one is on sale.
        need: A row per family of the appraisal: GPUs, milli-CPUs, MiB.
        worth: Reservation price times speed, per family of the appraisal, in micro-dollars per
            hour.
    """

    demand: Demand
    pace: Speeds
    own: Offering | None
    sold: bool
    need: Ints
    worth: tuple[int, ...]

    @property
    def largest(self) -> Ints:
        """The most that it needs on any family that hosts it: GPUs, milli-CPUs, MiB."""
        most: Ints = np.where(self.need < IMPOSSIBLE, self.need, 0).max(axis=0, initial=0)
        return most

    @property
    def price(self) -> int:
        """The reservation price in micro-dollars per hour, 0 if nothing hosts them."""
        return reservation_price(self.own)


class Appraisal:
    """Kinds of tasks under one set of offerings.

    Args:
        on_sale: What may be bought.
        others: What else is known; it prices tasks that nothing on sale hosts.
        standalone: How fast tasks run that do not say so themselves.

    Attributes:
        on_sale: Cheapest first.
        families: The number of each family.
        unit_price: Per resource, the least that a unit of it costs on anything on sale, in
            millionths of micro-dollars per hour for a GPU, a milli-CPU, a MiB; 0 if none has it.
    """

    def __init__(
        self,
        on_sale: Iterable[Offering],
        others: Iterable[Offering] = (),
        standalone: StandaloneRates = _NONE,
    ) -> None:
        self.on_sale = cheapest_first(on_sale)
        self._others = cheapest_first(others)
        known = (*self.on_sale, *self._others)
        names = sorted({offering.type.family for offering in known})
        self.families: Mapping[Family, int] = {name: number for number, name in enumerate(names)}
        self.unit_price = _unit_prices(self.on_sale)
        self._measured = measured_rates(standalone)
        self._by_task: dict[int, tuple[TaskSpec, Kind]] = {}
        self._kinds: dict[tuple[Demand, Speeds], Kind] = {}

    def kind(self, task: TaskSpec) -> Kind:
        """The kind of a task."""
        found = self._by_task.get(id(task))
        # An id is re-used once its task is gone, so the task is kept and compared.
        if found is not None and found[0] is task:
            return found[1]
        key = task.demand, speeds(task, self._measured.get(task.workload, ()))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._appraised(*key)
        if len(self._by_task) >= _MOST:
            self._by_task.clear()
        self._by_task[id(task)] = task, kind
        return kind

    @property
    def size(self) -> int:
        """How many kinds there are."""
        return len(self._kinds)

    def _appraised(self, demand: Demand, pace: Speeds) -> Kind:
        sold = reservation(demand, self.on_sale, pace)
        own = sold or reservation(demand, self._others, pace)
        need = np.full((len(self.families), 3), IMPOSSIBLE, dtype=np.int64)
        for family, amount in demand:
            if family in self.families:
                need[self.families[family]] = vector(amount)
        worth = tuple(price_on(family, own, pace) for family in self.families)
        return Kind(demand, pace, own, sold is not None, need, worth)


class Appraiser:
    """Keeps the last appraisal for as long as the same things are on sale and known."""

    def __init__(self) -> None:
        self._basis: tuple[tuple[Offering, ...], tuple[Offering, ...], StandaloneRates] | None = (
            None
        )
        self._appraisal = Appraisal(())

    def appraisal(self, snapshot: Snapshot) -> Appraisal:
        """The kinds of tasks at the prices of a snapshot."""
        listed = {offering.id: offering for offering in snapshot.catalog}
        bought = {view.offering.id: view.offering for view in snapshot.instances}
        on_sale: list[Offering] = []
        others: list[Offering] = []
        for id_, offering in sorted({**bought, **listed}.items()):
            sold = id_ in listed and purchasable(offering, snapshot.now_ms)
            (on_sale if sold else others).append(offering)
        basis = tuple(on_sale), tuple(others), snapshot.standalone
        if basis != self._basis or self._appraisal.size > _MOST:
            self._basis, self._appraisal = basis, Appraisal(*basis)
        return self._appraisal


def _unit_prices(offerings: Iterable[Offering]) -> npt.NDArray[np.int64]:
    least = np.zeros(3, dtype=np.int64)
    for offering in offerings:
        for resource, amount in enumerate(vector(offering.type.capacity)):
            if amount > 0:
                each = offering.price * 1_000_000 // amount
                least[resource] = min(each, least[resource]) if least[resource] else each
    return least
