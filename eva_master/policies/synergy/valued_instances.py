"""Instances that know what their tasks would be worth without interference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.valuation.task_classes import PricedShape, SnapshotShapes

Floats = npt.NDArray[np.float64]


class ValuedInstances(OpenInstances):
    """Open instances with the reservation prices of those who are in them.

    Args:
        snapshot: The cluster.
        shapes: Of its tasks.
    """

    row_arrays: Mapping[str, int] = {**OpenInstances.row_arrays, "_worth": 0, "_price": 0}

    def __init__(self, snapshot: Snapshot, shapes: SnapshotShapes) -> None:
        size = self.new_rows(snapshot)
        self._worth, self._price = np.zeros(size), np.zeros(size)
        super().__init__(snapshot, shapes)

    def changed(self, row: int) -> None:
        """Add the row up anew."""
        family = self.family(row)
        self._worth[row] = sum(self.priced(run).prices[family] for run in self.residents[row])
        self._price[row] = self.offerings[row].price

    def at_most(self, priced: PricedShape, rows: npt.NDArray[np.intp]) -> Floats:
        """What some rows are worth for their price with one more task, if nobody is slowed down.

        No instance is worth more than that.
        """
        worth: Floats = np.array(priced.prices, dtype=np.float64)[self._family[rows]]
        ratio: Floats = (self._worth[rows] + worth) / np.maximum(1, self._price[rows])
        return ratio

    def alignment(self, priced: PricedShape, rows: npt.NDArray[np.intp]) -> Floats:
        """How well what a task needs matches what is free: the sum of the products of shares."""
        whole = np.maximum(1, self.capacity()[rows])
        aligned: Floats = ((self.needed(priced)[rows] / whole) * (self.free()[rows] / whole)).sum(1)
        return aligned
