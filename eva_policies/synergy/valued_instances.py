"""Instances that know what their tasks would be worth without interference, and which are alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.valuation.task_classes import PricedShape, SnapshotShapes
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import RunId, Workload

Floats = npt.NDArray[np.float64]
_TaskKey = tuple[PricedShape, Workload, str]
"""The shape, the workload, and the gang; empty for a task without one."""
_ALONE = -1
"""Kind of a task which is to be alone, and load of a row that is empty or holds one."""


class ValuedInstances(OpenInstances):
    """Open instances with the reservation prices of those who are in them.

    Rows with equal loads (as much room of one family at one price, and as many tasks of each kind)
    are worth the same to any task that may join them.

    Args:
        snapshot: The cluster.
        shapes: Of its tasks.
        alone: Task runs that nobody is to join.
    """

    row_arrays: Mapping[str, int] = {
        **OpenInstances.row_arrays,
        "_worth": 0,
        "_price": 0,
        "_load": _ALONE,
    }

    def __init__(self, snapshot: Snapshot, shapes: SnapshotShapes, alone: frozenset[RunId]) -> None:
        size = self.new_rows(snapshot)
        self._worth, self._price = np.zeros(size), np.zeros(size)
        self._load = np.full(size, _ALONE, dtype=np.int64)
        self._alone = alone
        self._kinds: dict[_TaskKey, int] = {}
        self._counts: defaultdict[int, Counter[int]] = defaultdict(Counter)
        """Tasks of each kind on each row."""
        self._loads: dict[tuple[object, ...], int] = {}
        super().__init__(snapshot, shapes)

    def kind(self, run: RunId) -> int:
        """The number of a task run's kind; tasks of a kind are worth the same beside all others."""
        if run in self._alone:
            return _ALONE
        job = self.jobs[self.runs[run].job]
        gang = job.id if job.spec.kind is JobKind.GANG and len(job.runs) > 1 else ""
        key = self.priced(run), self.runs[run].task.workload, gang
        return self._kinds.setdefault(key, len(self._kinds))

    def load(self, row: int) -> int:
        """The number of a row's load."""
        return int(self._load[row])

    def joinable(self, priced: PricedShape) -> Ints:
        """Rows that a task of this shape may join; of those with equal loads the first alone."""
        rows = np.flatnonzero(self.fitting(priced) & (self._load[: len(self)] != _ALONE))
        first = np.full(len(self._loads), -1, dtype=np.int64)
        first[self._load[rows[::-1]]] = rows[::-1]
        return np.sort(first[first >= 0])

    def changed(self, row: int, run: RunId, tasks: int) -> None:
        """Add a task run to a row's worth and load, or take it away."""
        self._worth[row] += tasks * self.priced(run).prices[self.family(row)]
        self._price[row] = self.offerings[row].price
        counts, kind = self._counts[row], self.kind(run)
        counts[kind] += tasks
        if not counts[kind]:
            del counts[kind]
        self._load[row] = self._load_of(row, counts)

    def _load_of(self, row: int, counts: Mapping[int, int]) -> int:
        if not counts or _ALONE in counts:
            return _ALONE
        room = self.family(row), self.offerings[row].price, *self._capacity[row].tolist()
        return self._loads.setdefault((room, *sorted(counts.items())), len(self._loads))

    def at_most(self, priced: PricedShape, rows: npt.NDArray[np.intp]) -> Floats:
        """Worth of some rows for their price with one more task, without any interference.

        The result is an upper bound of the true worth.
        """
        worth: Floats = np.array(priced.prices, dtype=np.float64)[self._family[rows]]
        ratio: Floats = (self._worth[rows] + worth) / np.maximum(1, self._price[rows])
        return ratio

    def alignment(self, priced: PricedShape, rows: npt.NDArray[np.intp]) -> Floats:
        """How well what a task needs matches what is free: the sum of the products of shares."""
        whole = np.maximum(1, self.capacity()[rows])
        aligned: Floats = ((self.needed(priced)[rows] / whole) * (self.free()[rows] / whole)).sum(1)
        return aligned
