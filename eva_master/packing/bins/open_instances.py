"""Open instances, as one plan fills them: what is free on each, and what may still be bought."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.plan import Assign, NewInstance
from eva_master.model.planning.reasons import Where
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import by_id
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.room import may_buy_one
from eva_master.packing.valuation.reservation_price import cheapest_first, reservation
from eva_master.packing.valuation.task_classes import PricedShape, SnapshotShapes
from eva_master.packing.valuation.vectors import WIDTH, vector
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, OfferingId, RunId

Mask = npt.NDArray[np.bool_]


class OpenInstances:
    """Live and new instances with their free room, while a plan fills them.

    Every instance is a row: live ones first, by id, then new ones as they are bought. Changes can
    be undone back to a mark.

    Args:
        snapshot: The cluster.
        shapes: Shapes of its tasks.

    Attributes:
        runs: Every task run by id.
        jobs: Every job by id.
        offerings: The offering of each row.
        residents: The task runs on each row.
        row_of: The row of every task run that has a place.
        live: How many rows are live instances.
        prices: Offerings on sale, and the prices of task shapes at these.
    """

    row_arrays: Mapping[str, int] = {"_free": 0, "_capacity": 0, "_family": 0}
    """Arrays with a value for each row, by attribute, and the value of a new row; heirs add theirs
    and make them with `new_rows` before all others."""

    def __init__(self, snapshot: Snapshot, shapes: SnapshotShapes) -> None:
        self._snapshot = snapshot
        self._shapes = shapes
        self.runs = by_id(snapshot.runs)
        self.jobs = by_id(snapshot.jobs)
        self.offerings: list[Offering] = []
        self.residents: list[dict[RunId, None]] = []
        self.row_of: dict[RunId, int] = {}
        self.live = len(snapshot.instances)
        self.prices = shapes.prices
        size = self.new_rows(snapshot)
        self._gang_prices: dict[str, int] = {}
        self._free = np.zeros((size, WIDTH), dtype=np.int64)
        self._capacity = np.zeros((size, WIDTH), dtype=np.int64)
        self._family = np.zeros(size, dtype=np.int64)
        self._used: Counter[OfferingId] = Counter()
        self._owned = any(offering.purchase is Purchase.OWNED for offering in self.prices.on_sale)
        self._vacant: defaultdict[OfferingId, list[tuple[bool, int]]] = defaultdict(list)
        self._kept: set[int] = set()
        """Empty rows that must not be taken."""
        self._done: list[tuple[RunId | None, int]] = []
        rows: dict[InstanceId, int] = {}
        for view in snapshot.instances:
            rows[view.id] = self._append(view.offering)
        for run in snapshot.runs:
            if run.instance in rows:
                self._move_in(run.id, rows[run.instance])
        for row in range(self.live):
            self._note_if_vacant(row)

    @staticmethod
    def new_rows(snapshot: Snapshot) -> int:
        """For how many rows arrays are made at first."""
        return max(16, 2 * len(snapshot.instances))

    # -- looking ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.offerings)

    def priced(self, run: RunId) -> PricedShape:
        """The shape of a task run's task, and what it is worth."""
        return self._shapes.of(self.runs[run])

    def family(self, row: int) -> int:
        """The number of a row's family."""
        return int(self._family[row])

    def gang_of(self, run: RunId) -> tuple[RunId, ...]:
        """The task runs that stop when this one does, itself among them."""
        job = self.jobs[self.runs[run].job]
        return job.runs if job.spec.kind is JobKind.GANG else (run,)

    def others_price(self, run: RunId) -> int:
        """The reservation price of the other members of a task run's gang; 0 if it is in none."""
        job = self.jobs[self.runs[run].job]
        if job.spec.kind is not JobKind.GANG or len(job.runs) == 1:
            return 0
        if job.id not in self._gang_prices:
            self._gang_prices[job.id] = sum(self.priced(member).price for member in job.runs)
        return self._gang_prices[job.id] - self.priced(run).price

    def free(self) -> Ints:
        """Free room of each row (rows), with the columns of a `Vector`."""
        return self._free[: len(self)]

    def capacity(self) -> Ints:
        """Capacity of each row, with the same columns as `free`."""
        return self._capacity[: len(self)]

    def fitting(self, priced: PricedShape) -> Mask:
        """On which rows there is room for a task of this shape."""
        need, free = self.needed(priced), self.free()
        fits: Mask = need[:, 0] <= free[:, 0]
        fits &= need[:, 1] <= free[:, 1]
        fits &= need[:, 2] <= free[:, 2]
        fits &= need[:, 3] <= free[:, 3]
        return fits

    def needed(self, priced: PricedShape) -> Ints:
        """Demand of a task of this shape on each row, with the same columns as `free`."""
        need: Ints = priced.need[self._family[: len(self)]]
        return need

    def holds(self, row: int, priced: PricedShape) -> bool:
        """Whether a row has room for a task of this shape."""
        return bool((priced.need[self._family[row]] <= self._free[row]).all())

    def occupied(self) -> Mask:
        """Which rows hold a task."""
        return np.fromiter(map(bool, self.residents), dtype=np.bool_, count=len(self))

    def on_sale(self) -> tuple[Offering, ...]:
        """Offerings of which one more instance can be bought or is vacant; cheapest first."""
        bought = [offering for offering in self.prices.on_sale if may_buy_one(offering, self._used)]
        ids = {offering.id for offering in bought}
        spare = {
            self.offerings[row].id: self.offerings[row]
            for offering in list(self._vacant)
            if offering not in ids and (row := self._vacancy(offering)) is not None
        }
        return cheapest_first((*bought, *spare.values())) if spare else tuple(bought)

    def obtainable(self, offering: Offering) -> bool:
        """Whether one more instance of something on sale may be taken."""
        limit = offering.limit
        return (
            limit is None
            or self._used[offering.id] < limit
            or self._vacancy(offering.id) is not None
        )

    def cheapest(self, priced: PricedShape) -> Offering | None:
        """The offering that hosts one more task alone for the least price for an iteration."""
        # The offering that sets a task's price need not be the cheapest that is free.
        if self._owned:
            return reservation(priced.shape.demand, self.on_sale(), priced.shape.part.speeds)
        if priced.own is not None and priced.sold and self.obtainable(priced.own):
            return priced.own
        return reservation(priced.shape.demand, self.on_sale(), priced.shape.part.speeds)

    # -- filling ---------------------------------------------------------------------------------

    def put(self, run: RunId, row: int) -> None:
        """Give a task run without a place one; there must be room."""
        self._move_in(run, row)
        self._done.append((run, row))

    def take(self, run: RunId) -> int:
        """Take a task run's place away and say which it was."""
        row = self._move_out(run)
        self._done.append((run, ~row))
        return row

    def open(self, offering: Offering) -> int:
        """Take an instance of an offering: a vacant one if there is one, else buy it.

        The caller puts a task run on it at once. The offering must be on sale.
        """
        row = self._vacancy(offering.id)
        if row is None:
            row = self._append(offering)
            self._done.append((None, row))
        return row

    def keep(self, rows: Iterable[int]) -> None:
        """Some live instances stay though they are empty: `open` takes none of them."""
        self._kept.update(rows)

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._done)

    def back(self, mark: int) -> None:
        """Undo everything since a mark."""
        while len(self._done) > mark:
            run, row = self._done.pop()
            if run is None:
                self._used[self.offerings.pop().id] -= 1
                self.residents.pop()
            elif row >= 0:
                self._move_out(run)
            else:
                self._move_in(run, ~row)

    def changed(self, row: int, run: RunId, tasks: int) -> None:
        """A task run is on a row from now on (1), or no more (-1); for heirs that keep more."""

    # -- the result ------------------------------------------------------------------------------

    def placements(self) -> tuple[tuple[NewInstance, ...], list[Assign], Sequence[Where | None]]:
        """Launches and moves that lead to the present rows.

        Returns:
            The new instances that hold a task, the places that differ from the snapshot's, and the
            name of each row in these; `None` for an empty new row.
        """
        names: list[Where | None] = [view.id for view in self._snapshot.instances]
        launches: list[NewInstance] = []
        for row in range(self.live, len(self)):
            if self.residents[row]:
                names.append(len(launches))
                launches.append(NewInstance(len(launches), self.offerings[row]))
            else:
                names.append(None)
        entries = []
        for run in self._touched():
            where = names[self.row_of[run]] if run in self.row_of else None
            if where is not None and where != self.runs[run].instance:
                entries.append(Assign(run, where))
        return tuple(launches), entries, names

    # -- inside ----------------------------------------------------------------------------------

    def _touched(self) -> list[RunId]:
        return sorted({run for run, _ in self._done if run is not None})

    def _append(self, offering: Offering) -> int:
        row = len(self)
        if row == len(self._family):
            for name, fresh in self.row_arrays.items():
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.full_like(array, fresh)]))
        self._free[row] = self._capacity[row] = vector(offering.type.capacity)
        self._family[row] = self.prices.families[offering.type.family]
        self.offerings.append(offering)
        self.residents.append({})
        self._used[offering.id] += 1
        return row

    def _move_in(self, run: RunId, row: int) -> None:
        self._free[row] -= self.priced(run).need[self._family[row]]
        self.residents[row][run] = None
        self.row_of[run] = row
        self.changed(row, run, 1)

    def _move_out(self, run: RunId) -> int:
        row = self.row_of.pop(run)
        self._free[row] += self.priced(run).need[self._family[row]]
        del self.residents[row][run]
        self._note_if_vacant(row)
        self.changed(row, run, -1)
        return row

    def _note_if_vacant(self, row: int) -> None:
        if not self.residents[row]:
            coming = row < self.live and not self._snapshot.instances[row].ready
            heapq.heappush(self._vacant[self.offerings[row].id], (coming, row))

    def _vacancy(self, offering: OfferingId) -> int | None:
        """A row of an offering that nobody is on: a ready one, of these the first."""
        queue = self._vacant.get(offering)
        while queue:
            row = queue[0][1]
            # A row may have been filled, or taken back and bought anew as something else.
            same = row < len(self) and self.offerings[row].id == offering
            if same and not self.residents[row] and row not in self._kept:
                return row
            heapq.heappop(queue)
        return None
