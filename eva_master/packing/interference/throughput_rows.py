"""The throughput of many task sets at once, in floating point, for searches of the LP.

The values approximate `ThroughputModel.exact`: they are not rounded to millionths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eva_wire.values.ids import MILLION

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SMALLEST_PAIR = 1e-12
"""Stands for a pairwise throughput of nothing, of which there is no logarithm."""


class ThroughputRows:
    """Throughput of tasks in many task sets at once, as a fraction of standalone throughput.

    A task set is a row: the number of tasks of each workload.

    Args:
        pairs: Throughput of each workload (row) beside one task of another (column), in
            millionths.
        larger_sets: Observed throughput beside several others: workload, the others as (workload,
            tasks), throughput in millionths.

    Attributes:
        size: Number of workloads.
        kindest: The highest throughput of each workload beside one other task.
    """

    def __init__(
        self,
        pairs: Ints,
        larger_sets: Sequence[tuple[int, tuple[tuple[int, int], ...], int]],
    ) -> None:
        each = pairs / MILLION
        self.size = len(each)
        self.kindest: Floats = each.max(axis=1, initial=0.0)
        self._logs = np.log(np.maximum(each, _SMALLEST_PAIR))
        self._observed: dict[bytes, list[tuple[int, float]]] = {}
        self._better: list[tuple[int, Ints, float]] = []
        for workload, others, ppm in larger_sets:
            beside = self._row(others)
            whole = beside.copy()
            whole[workload] += 1
            self._observed.setdefault(whole.tobytes(), []).append((workload, ppm / MILLION))
            if ppm / MILLION > float(np.exp(beside @ self._logs[workload])):
                self._better.append((workload, beside, ppm / MILLION))

    def _row(self, task_set: tuple[tuple[int, int], ...]) -> Ints:
        row = np.zeros(self.size, dtype=np.int64)
        for workload, count in task_set:
            row[workload] = count
        return row

    def exact(self, rows: Ints) -> Floats:
        """Throughput of a task of each workload in a set (row); undefined for absent workloads."""
        estimate: Floats = np.exp(rows @ self._logs.T - np.diag(self._logs))
        if self._observed:
            for number, row in enumerate(rows):
                for workload, ppm in self._observed.get(row.tobytes(), ()):
                    estimate[number, workload] = ppm
        return estimate

    def upper_bound(self, rows: Ints) -> tuple[Floats, Floats]:
        """Upper bound of throughput in any set that includes the one of a row.

        More neighbours never raise an estimate, but a larger set may have been observed to do
        better than estimated.

        Returns:
            The bounds for a task of each workload that joins, and for one that is present.
        """
        logs = rows @ self._logs.T
        joining: Floats = np.exp(logs)
        present: Floats = np.exp(logs - np.diag(self._logs))
        for workload, beside, ppm in self._better:
            within = (rows <= beside).all(axis=1)
            joining[within, workload] = np.maximum(joining[within, workload], ppm)
            whole = beside.copy()
            whole[workload] += 1
            within = (rows <= whole).all(axis=1)
            present[within, workload] = np.maximum(present[within, workload], ppm)
        return joining, present


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
