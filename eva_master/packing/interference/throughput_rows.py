"""The throughput of many task sets at once, in floating point, for searches of the LP.

The values approximate `ThroughputModel.exact`: they are not rounded to millionths.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eva_wire.values.ids import MILLION

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class PairwiseThroughput:
    """Throughput as pairs alone tell it, whatever was observed of larger sets.

    Args:
        pairs: Throughput of each workload (row) beside one task of another (column), in
            millionths.

    Attributes:
        size: How many workloads there are.
    """

    def __init__(self, pairs: Ints) -> None:
        self._pairs: Floats = pairs / MILLION
        self._lost: Floats = 1 - self._pairs
        self.size = len(pairs)

    def beside(self, joined: Ints) -> Floats:
        """Throughput of each workload (columns) beside the task that joined each row."""
        slowed: Floats = self._pairs[:, joined].T
        return slowed

    def lost_to_newcomer(self, held: Floats) -> Floats:
        """Total loss on each row to a newcomer, by the newcomer's workload (columns).

        Args:
            held: Worth of the tasks of each workload (columns) on each row.
        """
        lost: Floats = (held[:, :, np.newaxis] * self._lost).sum(axis=1)
        return lost
