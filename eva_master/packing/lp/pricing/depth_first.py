"""Good sets of tasks for one machine when they slow each other down, found quickly.

Depth-first branch and bound as in `knapsack`, one task at a time: what a task is worth depends on
who is there. All classes that could join are looked at together. The bounds let every task that
may still join run at the best throughput that it can have beside those that are there. With so
few neighbours settled they prove little. `workload_multisets` proves more, but this search finds
good sets early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eva_master.packing.interference.throughput import (
    Ints,
    ThroughputModel,
    WorkloadMultiset,
    without_one,
)
from eva_master.packing.lp.columns import TaskSetKey
from eva_master.packing.lp.pricing.knapsack import (
    Floats,
    Items,
    KnapsackProblem,
    KnapsackResult,
    RoomBound,
    items,
)
from eva_master.packing.round_work import WorkKind
from eva_wire.values.ids import MILLION

_LEAST_VALUE = 1e-12
_NEIGHBOURS_TOLD_APART = 3
"""Losses beside so many neighbours are told apart, whoever they are."""


@dataclass(frozen=True, slots=True)
class JoinFractions:
    """Effects of a set on tasks, as fractions of standalone throughput, per workload.

    Attributes:
        newcomer: Loss of a task that joins it.
        members: Loss of a task of each workload in the set (rows) if one joined (columns).
        newcomer_at_best: Least loss of a task that joins it, whichever others join too.
        members_at_best: Least loss of a task of each workload in the set.
    """

    newcomer: Floats
    members: Floats
    newcomer_at_best: Floats
    members_at_best: Floats


class LossTable:
    """Remembers what sets do, for as long as the co-location table is the same."""

    def __init__(self, throughput: ThroughputModel) -> None:
        self._throughput = throughput
        self._known: dict[WorkloadMultiset, JoinFractions] = {}

    def of(self, multiset: WorkloadMultiset) -> JoinFractions:
        """Losses of a set's tasks, now and if one more joins."""
        fractions = self._known.get(multiset)
        if fractions is None:
            newcomer, members = self._throughput.after_join(multiset)
            best = self._throughput.upper_bound
            rows = [
                MILLION - int(best(without_one(multiset, workload))[workload])
                for workload, _ in multiset
            ]
            fractions = JoinFractions(
                newcomer / MILLION,
                members / MILLION,
                (MILLION - best(multiset)) / MILLION,
                np.array(rows) / MILLION,
            )
            self._known[multiset] = fractions
        return fractions

    def lost_beside(self, number: int) -> Floats:
        """Least loss of a task of each workload beside `number` others."""
        lost: Floats = (MILLION - self._throughput.upper_bound_beside(number)) / MILLION
        return lost


def _with(multiset: WorkloadMultiset, workload: int) -> WorkloadMultiset:
    counts = dict(multiset)
    counts[workload] = counts.get(workload, 0) + 1
    return tuple(sorted(counts.items()))


class DepthFirstSearch:
    """Looks for sets of tasks on one kind of machine.

    Args:
        losses: Losses in sets of tasks.
        workloads: Workload number of each class.
        charges: Charge of each class: the value of a standalone throughput, see `TaskClass.charge`.
    """

    def __init__(self, losses: LossTable, workloads: Ints, charges: Floats) -> None:
        self.losses = losses
        self.workloads = workloads
        self.charges = charges

    def run(self, question: KnapsackProblem) -> KnapsackResult:
        """Find sets of tasks that fit and are worth more than the question asks for."""
        value, worth = question.value, question.worth
        certain = self.losses.lost_beside
        beside_one = value - self.charges * certain(1)[self.workloads]
        # Even a task that seems to add nothing stays in, so that the bound is valid.
        floor = np.where(value > 0, np.maximum(beside_one, _LEAST_VALUE), 0.0)
        # A class replaces only classes of its own workload.
        traits = np.stack([self.workloads, -self.workloads, self.charges, -value], axis=1)
        chosen = items(question, floor, traits)
        if chosen is None:
            return KnapsackResult([], 0.0, 1)
        alone = float(value[chosen.classes].max())
        if max(chosen.whole, alone) <= worth:
            return KnapsackResult([], max(chosen.whole, alone), 1)
        grid = None
        if question.capacity[0]:
            # This grid ignores workloads, so it uses the values beside one neighbour.
            coarse = items(question, floor)
            assert coarse is not None
            grid = RoomBound(question.capacity, coarse, coarse.value)
        return _Descent(self, chosen, grid, question).run()


@dataclass(frozen=True, slots=True)
class _Node:
    """A set of tasks to which others may be added.

    Attributes:
        joining: Tasks that may be added here or further down.
        room: Free resources of the machine.
        multiset: The workloads of the set.
        held: Charges in the set, by workload.
        spare: Free share of the machine.
        value: Value of the tasks in the set, without losses.
    """

    joining: Ints
    room: Ints
    multiset: WorkloadMultiset
    held: dict[int, float]
    spare: float
    value: float


class _Descent:
    """One depth-first search; classes are named by their position in `Items`."""

    def __init__(
        self,
        search: DepthFirstSearch,
        chosen: Items,
        grid: RoomBound | None,
        question: KnapsackProblem,
    ) -> None:
        self._losses = search.losses
        self._chosen = chosen
        self._workload = search.workloads[chosen.classes]
        self._charge = search.charges[chosen.classes]
        self._value = question.value[chosen.classes]
        self._count = question.counts[chosen.classes]
        self._grid = grid
        self._levels = [
            np.maximum(
                self._value - self._charge * self._losses.lost_beside(number)[self._workload],
                _LEAST_VALUE,
            )
            for number in range(1, _NEIGHBOURS_TOLD_APART + 1)
        ]
        self._capacity = question.capacity
        self._limit = question.nodes
        self._sets = question.sets
        self._nodes = 0
        self._best = self._bound = question.worth
        self._path: list[int] = []
        self._found: list[TaskSetKey] = []

    def run(self) -> KnapsackResult:
        everyone = np.arange(len(self._value))
        self._descend(_Node(everyone, self._capacity, (), {}, self._chosen.whole, 0.0))
        return KnapsackResult(self._found, max(self._best, self._bound), self._nodes)

    def _descend(self, node: _Node) -> None:
        """Add one task to the set on the path."""
        joining, multiset, value = node.joining, node.multiset, node.value
        self._nodes += 1
        self._sets.spend(WorkKind.SET, len(joining))
        fractions = self._losses.of(multiset)
        need = self._chosen.need[joining]
        workload, charge = self._workload[joining], self._charge[joining]
        own = self._value[joining]
        charges = np.array([node.held[name] for name, _ in multiset])
        lost = (fractions.members * charges[:, np.newaxis]).sum(axis=0)
        reached = value + own - fractions.newcomer[workload] * charge - lost[workload]
        at_best = own - fractions.newcomer_at_best[workload] * charge
        settled = value - float((fractions.members_at_best * charges).sum())
        bound = self._bounds(joining, node.room - need, at_best, node.spare) + settled + at_best
        self._take(joining, reached)
        for position in np.flatnonzero(bound > self._best).tolist():
            # A better set found meanwhile may exceed this bound.
            if bound[position] <= self._best:
                continue
            if self._nodes >= self._limit or not self._sets.left:
                self._bound = max(self._bound, float(bound[position]))
                continue
            item = int(joining[position])
            rest = node.room - need[position]
            others = joining[position:]
            fits = (self._chosen.need[others] <= rest).all(axis=1)
            self._path.append(item)
            if self._path.count(item) >= self._count[item]:
                fits[0] = False
            others = others[fits]
            if others.size:
                name = int(workload[position])
                held = node.held.get(name, 0.0) + float(charge[position])
                self._descend(
                    _Node(
                        others,
                        rest,
                        _with(multiset, name),
                        {**node.held, name: held},
                        node.spare - float(self._chosen.share[item]),
                        value + float(own[position]),
                    )
                )
            self._path.pop()

    def _bounds(self, joining: Ints, rooms: Ints, at_best: Floats, spare: float) -> Floats:
        """Upper bound of the worth of tasks joining after each of `joining`."""
        share = self._chosen.share[joining]
        level = min(len(self._path), _NEIGHBOURS_TOLD_APART - 1)
        each = np.minimum(np.maximum(at_best, _LEAST_VALUE), self._levels[level][joining])
        ratio = each / np.maximum(share, _LEAST_VALUE)
        # Each position may only be followed by itself and later ones.
        best = np.maximum.accumulate(ratio[::-1])[::-1]
        bounds: Floats = np.maximum(spare - share, 0.0) * best
        if self._grid is not None:
            scale = each / self._levels[0][joining]
            scale = np.maximum.accumulate(scale[::-1])[::-1]
            bounds = np.minimum(bounds, scale * self._grid.bounds(rooms))
        return bounds

    def _take(self, joining: Ints, reached: Floats) -> None:
        """Keep the best set found at a node, if it beats all before."""
        position = int(np.argmax(reached))
        if reached[position] > self._best:
            self._best = float(reached[position])
            path = [*self._path, int(joining[position])]
            task_set = {int(self._chosen.classes[item]): path.count(item) for item in path}
            self._found.append(tuple(sorted(task_set.items())))
