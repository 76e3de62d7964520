"""The throughput of many task sets at once, in floating point, for searches of the LP.

These are approximations of `ThroughputModel.exact`: they do not round to millionths.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eva_master.model.ids import MILLION

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SMALLEST_PAIR = 1e-12
"""Stands for a pairwise throughput of nothing, of which there is no logarithm."""


class ThroughputRows:
    """Throughput of tasks in many task sets at once, as a fraction of standalone throughput.

    A task set is a row: how many tasks there are of each workload.

    Args:
        pairs: Throughput of each workload (row) beside one task of another (column), in
            millionths.
        larger_sets: What was observed of tasks beside several others: workload, these as
            (workload, tasks), throughput in millionths.

    Attributes:
        size: How many workloads there are.
        kindest: The most that each workload runs at beside one other task.
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
        """Of a task of each workload in a set (row); of workloads not in it it means nothing."""
        found: Floats = np.exp(rows @ self._logs.T - np.diag(self._logs))
        if self._observed:
            for number, row in enumerate(rows):
                for workload, known in self._observed.get(row.tobytes(), ()):
                    found[number, workload] = known
        return found

    def upper_bound(self, rows: Ints) -> tuple[Floats, Floats]:
        """The most that throughput can be in any set that includes the one of a row.

        More neighbours never raise an estimate, but a larger set may have been observed to do
        better than estimated.

        Returns:
            Of a task of each workload that joins, and of one that is there.
        """
        logs = rows @ self._logs.T
        joining: Floats = np.exp(logs)
        there: Floats = np.exp(logs - np.diag(self._logs))
        for workload, beside, known in self._better:
            within = (rows <= beside).all(axis=1)
            joining[within, workload] = np.maximum(joining[within, workload], known)
            whole = beside.copy()
            whole[workload] += 1
            within = (rows <= whole).all(axis=1)
            there[within, workload] = np.maximum(there[within, workload], known)
        return joining, there


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
        """What each workload (columns) is slowed down to by the task that joined each row."""
        slowed: Floats = self._pairs[:, joined].T
        return slowed

    def lost_to_newcomer(self, held: Floats) -> Floats:
        """What everyone on each row loses to a newcomer, by the newcomer's workload (columns).

        Args:
            held: What the tasks of each workload (columns) on each row are worth.
        """
        lost: Floats = (held[:, :, np.newaxis] * self._lost).sum(axis=1)
        return lost
