"""The best set of tasks for one machine when they slow each other down.

How much a task loses depends on the workloads beside it, not on their sizes. So the search is over
multisets of workloads: once the multiset is settled, what a task of each class is
worth in it is a plain number, and choosing the sizes is a knapsack problem with so many tasks of
each workload.

Multisets are gone through by size, all of one size at once (`_Survey`). With prices for the
machine's GPUs, CPU time and memory, a multiset's tasks and whoever may still join are worth at most
what the machine costs at these prices, if nobody is a bargain; so most multisets are left out
together with all that include them. Better prices for each of the others, found by the subgradient
method (`_promising`), leave few, of which the best sets are found by branch and bound (`_Choices`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eva_master.packing.interference.throughput import Ints
from eva_master.packing.interference.throughput_rows import ThroughputRows
from eva_master.packing.lp.columns import TaskSetKey
from eva_master.packing.lp.pricing.knapsack import (
    Floats,
    Items,
    KnapsackProblem,
    KnapsackResult,
    dual_prices,
    items,
)
from eva_master.packing.round_work import WorkBudget, WorkKind

_NUMERICAL_ZERO = 1e-12
_PRICED_FOR_NEIGHBOURS = 3
"""The machine's prices are tried as they would be if everybody had 0, 1, ... neighbours."""
_SIZES_SHARING_NODES = 8
"""Multisets of one size are given this part of all that may be looked at."""
_MOST_LARGER = 1 << 16
"""Multisets that are made at once of those of one task less."""
_CELLS_PER_SET = 64
"""So many tasks that could join are looked at in the time of one set elsewhere."""
_ROWS_PER_PIECE = 1024
"""Multisets looked at in one piece."""
_SUBGRADIENT_STEPS = 6
"""Of the subgradient method."""


class MultisetSearch:
    """Looks for sets of tasks on one kind of machine.

    Args:
        throughput: How fast the tasks of a set run.
        workloads: Of each class.
        charges: Of each class: the value of a standalone throughput, see `TaskClass.charge`.
    """

    def __init__(self, throughput: ThroughputRows, workloads: Ints, charges: Floats) -> None:
        self.throughput = throughput
        self.workloads = workloads
        self.charges = charges

    def run(self, question: KnapsackProblem) -> KnapsackResult:
        """Find sets of tasks that fit and are worth more than was asked for."""
        value, counts = question.value, question.counts
        # Tasks that ask for nothing are left out of the search. They may be on board in any case.
        nothing = (question.need == 0).all(axis=1) & (value > 0) & (counts > 0)
        extra = float((value[nothing] * counts[nothing]).sum())
        floor = np.where((value > 0) & ~nothing, value, 0.0)
        # One class replaces another only if it is of the same workload.
        traits = np.stack([self.workloads, -self.workloads, self.charges, -value], axis=1)
        chosen = items(question, floor, traits)
        worth = question.worth - extra
        if chosen is None or chosen.whole <= worth:
            return KnapsackResult([], extra + (0.0 if chosen is None else chosen.whole), 1)
        sorted_classes = _SortedClasses(self, question, chosen)
        sets, bound, nodes = _explored(sorted_classes, worth, question.nodes, question.sets)
        # On each of them there is room for the tasks that ask for nothing.
        task_sets = [task_set for reached, task_set in sets if reached > question.worth]
        return KnapsackResult(task_sets, bound + extra, nodes)


class _SortedClasses:
    """The classes of a search, sorted by workload, a position each."""

    def __init__(self, search: MultisetSearch, question: KnapsackProblem, chosen: Items) -> None:
        order = np.argsort(search.workloads[chosen.classes], kind="stable")
        self.throughput = search.throughput
        self.classes = chosen.classes[order]
        self.capacity = question.capacity
        self.need = chosen.need[order]
        self.most = chosen.most[order]
        self.value = question.value[self.classes]
        self.charge = search.charges[self.classes]
        self.workload = search.workloads[self.classes]
        self.fractions: Floats = self.need / np.maximum(self.capacity, 1)
        """Needs as fractions of the machine."""
        self.starts = np.flatnonzero(np.diff(self.workload, prepend=-1))
        """Where each workload begins."""
        self.present = self.workload[self.starts]
        """The workloads that there are."""

    def worth(self, throughput: Floats) -> Floats:
        """Worth of a task of each class (columns) at given throughputs, a row per multiset."""
        worth: Floats = self.value - self.charge * (1.0 - throughput[:, self.workload])
        return worth

    def best(self, values: Floats) -> Floats:
        """The largest value of each workload (columns), a row per multiset."""
        best: Floats = np.maximum.reduceat(values, self.starts, axis=1)
        return best

    def directions(self) -> Floats:
        """Prices of the machine's parts, up to a factor, by the number of neighbours."""
        kindest = self.throughput.kindest[self.workload]
        prices_by_count = []
        for neighbours in range(_PRICED_FOR_NEIGHBOURS):
            value = self.value - self.charge * (1.0 - kindest**neighbours)
            some = value > 0
            if some.any():
                prices_by_count.append(dual_prices(self.fractions[some], value[some]))
        directions: Floats = np.array(prices_by_count)
        directions /= directions.sum(axis=1, keepdims=True)
        return directions


def _explored(
    sorted_classes: _SortedClasses, worth: float, nodes: int, budget: WorkBudget
) -> tuple[list[tuple[float, TaskSetKey]], float, int]:
    """Sets worth more than that, the best one last; a bound on all; how many were looked at."""
    survey = _Survey(sorted_classes, worth, nodes, budget)
    rows, prices = survey.run()
    bound, tried = max(worth, survey.bound), survey.nodes
    sets: list[tuple[float, TaskSetKey]] = []
    if len(rows):
        promising = _promising(sorted_classes, rows, prices, worth)
        for at in range(0, len(promising.rows), _ROWS_PER_PIECE):
            if tried >= survey.nodes + nodes or not budget.left:
                bound = max(bound, float(promising.bounds[at]))
                break
            limit = max(nodes // _SIZES_SHARING_NODES, 1)
            choices = _Choices(
                sorted_classes, promising.part(at, at + _ROWS_PER_PIECE), worth, limit, budget
            )
            sets.extend(choices.run())
            tried += choices.nodes
            bound = max(bound, choices.bound)
    sets.sort()
    return sets, max(bound, *(reached for reached, _ in sets[-1:]), worth), tried


class _Survey:
    """Goes through multisets by size, leaving out those whose worth cannot exceed the limit.

    Attributes:
        bound: Upper bound of the worth of multisets left out for lack of effort.
        nodes: Number of multisets examined.
    """

    def __init__(
        self, sorted_classes: _SortedClasses, worth: float, nodes: int, budget: WorkBudget
    ) -> None:
        self._sorted_classes = sorted_classes
        self._worth = worth
        self._budget = budget
        at_once = _MOST_LARGER // len(sorted_classes.present)
        self._limit = max(min(nodes // _SIZES_SHARING_NODES, at_once), 1)
        self._directions = sorted_classes.directions()
        self._shares = np.maximum(sorted_classes.fractions @ self._directions.T, _NUMERICAL_ZERO)
        self._least = np.zeros(
            (sorted_classes.throughput.size, sorted_classes.need.shape[1]), dtype=np.int64
        )
        self._least[sorted_classes.present] = np.minimum.reduceat(
            sorted_classes.need, sorted_classes.starts, axis=0
        )
        self._most = np.zeros(sorted_classes.throughput.size, dtype=np.int64)
        self._most[sorted_classes.present] = np.add.reduceat(
            sorted_classes.most, sorted_classes.starts
        )
        self.bound = 0.0
        self.nodes = 0

    def run(self) -> tuple[Ints, Floats]:
        """The multisets that may exceed the limit of worth, a row each, and prices for each."""
        size = self._sorted_classes.throughput.size
        rows, last = np.zeros((1, size), dtype=np.int64), np.zeros(1, dtype=np.int64)
        kept: list[tuple[Ints, Floats]] = []
        while len(rows):
            self.nodes += len(rows)
            cells = len(rows) * len(self._sorted_classes.workload)
            self._budget.spend(WorkKind.SET, len(rows) + cells // _CELLS_PER_SET)
            bounds, prices = self._bounds(rows)
            chosen = np.flatnonzero(bounds > self._worth)
            if len(chosen) > self._limit:
                chosen = chosen[np.argsort(-bounds[chosen], kind="stable")]
                self.bound = max(self.bound, float(bounds[chosen[self._limit]]))
                chosen = np.sort(chosen[: self._limit])
            rows, last = rows[chosen], last[chosen]
            kept.append((rows, prices[chosen]))
            if not self._budget.left:
                self.bound = max(self.bound, float(bounds[chosen].max(initial=0.0)))
                break
            rows, last = self._larger(rows, last)
        multisets_kept = np.concatenate([multisets for multisets, _ in kept[1:]] or [rows[:0]])
        none = np.zeros((0, self._sorted_classes.need.shape[1]))
        return multisets_kept, np.concatenate([prices for _, prices in kept[1:]] or [none])

    def _larger(self, rows: Ints, last: Ints) -> tuple[Ints, Ints]:
        """All multisets of one more task; each arises once, as workloads join in order."""
        larger, joined = [rows[:0]], [last[:0]]
        for workload in self._sorted_classes.present.tolist():
            some = rows[(last <= workload) & (rows[:, workload] < self._most[workload])]
            some = some.copy()
            some[:, workload] += 1
            some = some[(some @ self._least <= self._sorted_classes.capacity).all(axis=1)]
            larger.append(some)
            joined.append(np.full(len(some), workload, dtype=np.int64))
        return np.concatenate(larger), np.concatenate(joined)

    def _bounds(self, rows: Ints) -> tuple[Floats, Floats]:
        """Upper bounds of multisets, and all that include them; and the prices that prove them."""
        pieces = [
            self._bounds_of(rows[at : at + _ROWS_PER_PIECE])
            for at in range(0, len(rows), _ROWS_PER_PIECE)
        ]
        return np.concatenate([b for b, _ in pieces]), np.concatenate([p for _, p in pieces])

    def _bounds_of(self, rows: Ints) -> tuple[Floats, Floats]:
        sorted_classes = self._sorted_classes
        joining, present = (
            sorted_classes.worth(each) for each in sorted_classes.throughput.upper_bound(rows)
        )
        counts = rows[:, sorted_classes.present]
        bounds = np.full(len(rows), np.inf)
        prices = np.zeros((len(rows), sorted_classes.need.shape[1]))
        for direction, share in zip(self._directions, self._shares.T, strict=True):
            # At this level of prices no task that may still join is a bargain.
            level = np.maximum((joining / share).max(axis=1), 0.0)
            held = sorted_classes.best(present - level[:, np.newaxis] * share)
            bound = level + (counts * held).sum(axis=1)
            better = bound < bounds
            bounds[better] = bound[better]
            prices[better] = level[better, np.newaxis] * direction
        return bounds, prices


@dataclass(frozen=True, slots=True)
class _Promising:
    """Multisets that may have a set above the limit of worth.

    Attributes:
        rows: One multiset per row.
        values: Worth of a task of each class in them.
        prices: Prices of the whole machine's parts, for each.
        bounds: Upper bound of the worth of any set of the multiset, the largest first.
    """

    rows: Ints
    values: Floats
    prices: Floats
    bounds: Floats

    def part(self, start: int, end: int) -> _Promising:
        """The multisets from one position to another."""
        some = slice(start, end)
        return _Promising(self.rows[some], self.values[some], self.prices[some], self.bounds[some])


def _promising(
    sorted_classes: _SortedClasses, rows: Ints, prices: Floats, worth: float
) -> _Promising:
    """Examine multisets by themselves, without those that include them.

    The prices of each are moved towards those at which its bound is least, by Polyak's rule, until
    the bound is below the limit of worth.
    """
    values = sorted_classes.worth(sorted_classes.throughput.exact(rows))
    counts = rows[:, sorted_classes.present]
    bounds = np.full(len(rows), np.inf)
    best, prices = prices.copy(), prices.copy()
    remaining = np.arange(len(rows))
    for _ in range(_SUBGRADIENT_STEPS):
        price = prices[remaining]
        above = values[remaining] - price @ sorted_classes.fractions.T
        bound, used = _relaxed(sorted_classes, above, counts[remaining], price)
        better = bound < bounds[remaining]
        bounds[remaining[better]], best[remaining[better]] = bound[better], price[better]
        over = used - 1.0
        step = np.maximum(bound - worth, 0.0) / np.maximum((over**2).sum(axis=1), _NUMERICAL_ZERO)
        prices[remaining] = np.maximum(price + step[:, np.newaxis] * over, 0.0)
        remaining = remaining[bounds[remaining] > worth]
        if not remaining.size:
            break
    remaining = remaining[np.argsort(-bounds[remaining], kind="stable")]
    return _Promising(rows[remaining], values[remaining], best[remaining], bounds[remaining])


def _relaxed(
    sorted_classes: _SortedClasses, left: Floats, counts: Ints, price: Floats
) -> tuple[Floats, Floats]:
    """The bound of multisets at prices, and the part of the machine in demand there.

    Args:
        sorted_classes: The classes.
        left: Worth of a task of each class above the prices, a row per multiset.
        counts: Tasks of each workload.
        price: Prices of the whole machine's parts.
    """
    bound, used = price.sum(axis=1), np.zeros_like(price)
    ends = [*sorted_classes.starts[1:].tolist(), left.shape[1]]
    for column, (start, end) in enumerate(zip(sorted_classes.starts.tolist(), ends, strict=True)):
        chosen = left[:, start:end].argmax(axis=1) + start
        bound += counts[:, column] * left[np.arange(len(left)), chosen]
        used += counts[:, column, np.newaxis] * sorted_classes.fractions[chosen]
    return bound, used


class _Choices:
    """The best sets of multisets: a choice of classes for the tasks of each workload.

    Every task of a multiset is a place. The places of all multisets are filled at the same time,
    one after the other; a partial set is continued while the machine's cost, plus the worth above
    the prices of its tasks and of the best ones for the other places, is enough.

    Attributes:
        bound: Upper bound of the worth of sets left out for lack of effort.
        nodes: Number of partial sets examined.
    """

    def __init__(
        self,
        sorted_classes: _SortedClasses,
        multisets: _Promising,
        worth: float,
        limit: int,
        budget: WorkBudget,
    ) -> None:
        self._budget = budget
        self._sorted_classes = sorted_classes
        self._worth = worth
        self._limit = limit
        self._values = multisets.values
        self._above = multisets.values - multisets.prices @ sorted_classes.fractions.T
        self._cost = multisets.prices.sum(axis=1)
        counts = multisets.rows[:, sorted_classes.present]
        self._size = int(counts.sum(axis=1).max())
        self._ends = np.append(sorted_classes.starts[1:], len(sorted_classes.workload))
        self._widest = int((self._ends - sorted_classes.starts).max())
        # The workload of each place, by column; none beyond a multiset's last task.
        ranks = np.cumsum(counts, axis=1)
        places = np.arange(self._size)
        self._places = (ranks[:, np.newaxis, :] <= places[np.newaxis, :, np.newaxis]).sum(axis=2)
        most = np.hstack([sorted_classes.best(self._above), np.zeros((len(counts), 1))])
        gains = np.take_along_axis(most, self._places, axis=1)
        # Upper bound of the gain of the places from each one on.
        self._rest = np.hstack(
            [np.cumsum(gains[:, ::-1], axis=1)[:, ::-1], np.zeros((len(counts), 1))]
        )
        self.bound = 0.0
        self.nodes = 0

    def run(self) -> list[tuple[float, TaskSetKey]]:
        """The best set of each multiset above the limit of worth."""
        number = len(self._cost)
        partial = _Partial(
            multiset=np.arange(number),
            room=np.repeat(self._sorted_classes.capacity[np.newaxis, :], number, axis=0),
            above=self._cost.copy(),
            value=np.zeros(number),
            path=np.full((number, self._size), -1, dtype=np.int64),
        )
        best: dict[int, tuple[float, list[int]]] = {}
        for place in range(self._size):
            done = self._places[partial.multiset, place] == len(self._sorted_classes.starts)
            self._keep(best, partial.some(np.flatnonzero(done)))
            growing = partial.some(np.flatnonzero(~done))
            partial = self._next(self._affordable(growing, place), place)
        self._keep(best, partial)
        return [(value, self._pattern(path)) for value, path in best.values()]

    def _next(self, partial: _Partial, place: int) -> _Partial:
        """Fill one more place of each set in every way that may be good enough."""
        sorted_classes = self._sorted_classes
        column = self._places[partial.multiset, place]
        position = sorted_classes.starts[column, np.newaxis] + np.arange(self._widest)
        fits = position < self._ends[column, np.newaxis]
        position = np.minimum(position, len(sorted_classes.workload) - 1)
        gain = self._above[partial.multiset[:, np.newaxis], position]
        least = self._worth - partial.above - self._rest[partial.multiset, place + 1]
        fits &= gain > least[:, np.newaxis]
        if place:
            # Classes of one workload are taken in order, so that each set is met once.
            fits &= position >= partial.path[:, place - 1, np.newaxis]
        label, option = np.nonzero(fits)
        position = position[label, option]
        room = partial.room[label] - sorted_classes.need[position]
        already = (partial.path[label] == position[:, np.newaxis]).sum(axis=1)
        fine = np.flatnonzero((room >= 0).all(axis=1) & (already < sorted_classes.most[position]))
        label, position, room = label[fine], position[fine], room[fine]
        grown = partial.some(label)
        grown.room = room
        grown.path[:, place] = position
        grown.above = grown.above + self._above[grown.multiset, position]
        grown.value = grown.value + self._values[grown.multiset, position]
        self.nodes += len(label)
        self._budget.spend(WorkKind.SET, len(label))
        return self._limited(grown, place + 1, self._limit)

    def _affordable(self, partial: _Partial, place: int) -> _Partial:
        """As many as may be looked at in every way in which they can grow."""
        return self._limited(
            partial, place, self._budget.affords(WorkKind.SET) // max(self._widest, 1)
        )

    def _limited(self, partial: _Partial, place: int, limit: int) -> _Partial:
        if len(partial.multiset) <= limit:
            return partial
        bounds = partial.above + self._rest[partial.multiset, place]
        order = np.argsort(-bounds, kind="stable")
        self.bound = max(self.bound, float(bounds[order[limit]]))
        return partial.some(order[:limit])

    def _keep(self, best: dict[int, tuple[float, list[int]]], full: _Partial) -> None:
        for at in np.flatnonzero(full.value > self._worth).tolist():
            multiset, value = int(full.multiset[at]), float(full.value[at])
            if multiset not in best or value > best[multiset][0]:
                best[multiset] = value, full.path[at].tolist()

    def _pattern(self, path: list[int]) -> TaskSetKey:
        counts: dict[int, int] = {}
        for position in path:
            if position >= 0:
                number = int(self._sorted_classes.classes[position])
                counts[number] = counts.get(number, 0) + 1
        return tuple(sorted(counts.items()))


@dataclass(slots=True)
class _Partial:
    """Sets in the making, a row each.

    Attributes:
        multiset: Number of its multiset.
        room: Left on the machine.
        above: The prices of the whole machine and what the tasks are worth above them.
        value: Of the tasks.
        path: Their positions, by place.
    """

    multiset: Ints
    room: Ints
    above: Floats
    value: Floats
    path: Ints

    def some(self, rows: Ints) -> _Partial:
        """Copies of some of them."""
        return _Partial(
            self.multiset[rows],
            self.room[rows],
            self.above[rows],
            self.value[rows],
            self.path[rows],
        )
