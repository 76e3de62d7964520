"""Many good task sets for one machine at once: each class is the first of one of them.

A search finds the best set; column generation also needs sets for all the classes that are in no
best one. All these sets are filled together, by value per share of the machine. Throughput beside
more than one neighbour is approximated by the product of pairs, ignoring observations of larger
sets: a column's cost is computed exactly afterwards.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eva_master.packing.interference.throughput import Ints
from eva_master.packing.interference.throughput_rows import PairwiseThroughput
from eva_master.packing.lp.columns import TaskSetKey
from eva_master.packing.lp.pricing.knapsack import Floats, KnapsackProblem, items
from eva_master.packing.round_work import WorkKind

_MOST_JOINS = 24
_LEAST_SHARE = 1e-12
_CELLS_PER_SET = 64
"""So many tasks that could join are looked at in the time of one set elsewhere."""


class GreedyColumns:
    """Fills machines with tasks that slow each other down.

    Args:
        workloads: Workload number of each class.
        charges: Charge of each class, see `TaskClass.charge`, in the unit of the values.
        throughput: Throughput of pairs of tasks.
    """

    def __init__(self, workloads: Ints, charges: Floats, throughput: PairwiseThroughput) -> None:
        self.workloads = workloads
        self.charges = charges
        self.throughput = throughput

    def task_sets(self, question: KnapsackProblem) -> list[TaskSetKey]:
        """Sets that fit and are worth more than asked for, at most one per first class."""
        value, need = question.value, question.need
        traits = np.stack([self.workloads, -self.workloads, self.charges, -value], axis=1).astype(
            np.float64
        )
        chosen = items(question, value, traits)
        if chosen is None:
            return []
        fits = (value > 0) & (question.counts > 0) & (need <= question.capacity).all(axis=1)
        first = np.flatnonzero(fits)
        joined = _State(self, question, first, chosen.classes, chosen.share)
        for _ in range(_MOST_JOINS):
            if not question.sets.left or not joined.step():
                break
        return joined.task_sets(question.worth)


class _State:
    """The machines while they are filled, a row each."""

    def __init__(
        self,
        greedy: GreedyColumns,
        question: KnapsackProblem,
        first: Ints,
        classes: Ints,
        share: Floats,
    ) -> None:
        self._question, self._first, self._classes = question, first, classes
        self._workload = greedy.workloads[classes]
        self._charge = greedy.charges[classes]
        self._own = question.value[classes]
        self._need = question.need[classes]
        self._share = np.maximum(share, _LEAST_SHARE)
        self._throughput = greedy.throughput
        size, number = greedy.throughput.size, len(first)
        rows = np.arange(number)
        begun = greedy.workloads[first]
        self._room = question.capacity - question.need[first]
        self._newcomer: Floats = self._throughput.beside(begun).copy()
        self._held: Floats = np.zeros((number, size))
        self._held[rows, begun] = greedy.charges[first]
        self._worth: Floats = question.value[first].copy()
        self._joined: Ints = np.zeros((number, len(classes)), dtype=np.int64)
        self._left: Ints = question.counts[classes] - (first[:, np.newaxis] == classes)
        self._open = rows

    def step(self) -> bool:
        """Let a task join each machine that gains by one; return whether any did."""
        rows = self._open
        self._question.sets.spend(WorkKind.SET, len(rows) * len(self._classes) // _CELLS_PER_SET)
        fits: npt.NDArray[np.bool_] = self._left[rows] > 0
        for column in range(self._need.shape[1]):
            fits &= self._need[:, column] <= self._room[rows, column, np.newaxis]
        harm = self._throughput.lost_to_newcomer(self._held[rows])
        lost = self._charge * (1 - self._newcomer[rows][:, self._workload])
        gain = self._own - lost - harm[:, self._workload]
        score = np.where(fits, gain / self._share, 0.0)
        best = score.argmax(axis=1)
        going = score[np.arange(len(rows)), best] > 0
        rows, best = rows[going], best[going]
        self._open = rows
        if not rows.size:
            return False
        workload = self._workload[best]
        self._worth[rows] += gain[going, best]
        self._joined[rows, best] += 1
        self._left[rows, best] -= 1
        self._room[rows] -= self._need[best]
        # Tasks already present run slower; the newcomer runs as fast as the set allowed before.
        throughput = self._newcomer[rows, workload]
        slowed = self._throughput.beside(workload)
        self._held[rows] *= slowed
        self._held[rows, workload] += self._charge[best] * throughput
        self._newcomer[rows] *= slowed
        return True

    def task_sets(self, worth: float) -> list[TaskSetKey]:
        """The filled sets whose worth is above the limit."""
        sets: dict[TaskSetKey, None] = {}
        for row in np.flatnonzero(self._worth > worth).tolist():
            task_set = {int(self._first[row]): 1}
            for position in np.flatnonzero(self._joined[row]).tolist():
                number = int(self._classes[position])
                task_set[number] = task_set.get(number, 0) + int(self._joined[row, position])
            sets[tuple(sorted(task_set.items()))] = None
        return list(sets)
