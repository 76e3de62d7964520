"""Instances by how long their tasks will still run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.valuation.task_classes import SnapshotShapes
from eva_wire.values.ids import RunId

_LONGEST_MS = 1 << 50
"""Whatever would run for longer runs for so long."""


def bin_of(left_ms: int) -> int:
    """The runtime bin: N holds what will run for 2^(N-1) seconds and more, but less than 2^N.

    Less than a second is in bin 0.
    """
    return (left_ms // 1000).bit_length()


class Bins(OpenInstances):
    """Open instances that know until when they are needed: as long as the last of their tasks.

    Args:
        snapshot: The cluster.
        shapes: Of its tasks.
        left: How long each task run will still run where its reservation price comes from, in
            milliseconds.
    """

    row_arrays: Mapping[str, int] = {**OpenInstances.row_arrays, "_left": -1, "_bins": -1}

    def __init__(
        self, snapshot: Snapshot, shapes: SnapshotShapes, left: Mapping[RunId, int]
    ) -> None:
        self.left = left
        size = self.new_rows(snapshot)
        self._left = np.full(size, -1, dtype=np.int64)
        self._bins = np.full(size, -1, dtype=np.int64)
        super().__init__(snapshot, shapes)

    def left_on_rows(self, run: RunId) -> tuple[Ints, Ints]:
        """Remaining time of a task run on each row, in milliseconds, and its bin there."""
        rest_ms = self._left_on_families(run)
        bins = list(map(bin_of, rest_ms))
        rows = self._family[: len(self)]
        return np.array(rest_ms, dtype=np.int64)[rows], np.array(bins, dtype=np.int64)[rows]

    def _left_on_families(self, run: RunId) -> list[int]:
        priced, rest_ms = self.priced(run), self.left[run]
        if not priced.shape.part.speeds:
            return [rest_ms] * len(priced.prices)
        return [
            min(rest_ms * priced.price // max(1, worth), _LONGEST_MS) for worth in priced.prices
        ]

    def longest(self) -> Ints:
        """How long the last task of each row will still run, -1 where there is none."""
        return self._left[: len(self)]

    def bins(self) -> Ints:
        """The bin of each row, -1 where there is no task."""
        return self._bins[: len(self)]

    def changed(self, row: int, run: RunId, tasks: int) -> None:
        """Put the row into its bin."""
        family = self.family(row)
        if tasks > 0:
            longest = max(int(self._left[row]), self._left_on_families(run)[family])
        else:
            residents = self.residents[row]
            longest = max(
                (self._left_on_families(resident)[family] for resident in residents), default=-1
            )
        self._left[row] = longest
        self._bins[row] = -1 if longest < 0 else bin_of(longest)
