"""The best set of tasks for one machine when they do not slow each other down.

Depth-first branch and bound over the classes, the one with the most value for its share of the
machine first. Two bounds cut the search: a linear one, and one from dynamic programming over a
coarse grid of GPUs, CPU time and memory in which every demand is rounded down.

`compiled_knapsack` calls the compiled search, which answers the same bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.columns import TaskSetKey
from eva_master.packing.round_work import WorkBudget, WorkKind

Floats = npt.NDArray[np.float64]

_GRID_CPU_CELLS = 512
_GRID_MEMORY_CELLS = 8
_NUMERICAL_ZERO = 1e-12
_UNLIMITED = 1 << 40
SETS_KEPT = 100
"""Sets of a search that are kept: the last ones found, which are the best."""
COUNTED_AS = 8
"""A set that is looked at by itself counts as so many that are looked at all at once."""


@dataclass(frozen=True, slots=True)
class KnapsackProblem:
    """A search for task sets on one machine.

    Attributes:
        capacity: Capacity of the machine: GPUs, milli-CPUs, MiB of memory, and of disk if any class
            needs disk.
        need: Demand per class, a row each, with the same columns.
        value: Value of a task of each class.
        counts: Number of tasks of each class.
        worth: Lower limit of a task set's worth, which must be exceeded.
        nodes: Upper limit of the sets to examine.
        sets: Upper limit of all searches together; sets examined only as joins count too.
    """

    capacity: Ints
    need: Ints
    value: Floats
    counts: Ints
    worth: float
    nodes: int
    sets: WorkBudget = field(default_factory=WorkBudget)

    def most(self) -> Ints:
        """How many tasks of each class the machine holds, however many there are."""
        fitting = self.capacity // np.maximum(self.need, 1)
        most: Ints = np.where(self.need > 0, fitting, _UNLIMITED).min(axis=1)
        return most


@dataclass(frozen=True, slots=True)
class KnapsackResult:
    """Result of a search.

    Attributes:
        task_sets: Sets above the limit of worth, the best one last; no more than `SETS_KEPT`.
        bound: Upper bound of the worth of any task set.
        nodes: Number of sets examined.
    """

    task_sets: list[TaskSetKey]
    bound: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Items:
    """Classes that may be in a best task set, the most valuable for its share first.

    Attributes:
        classes: Their numbers.
        need: A row each, with the columns of the question.
        value: Of one task.
        most: How many of them an empty machine holds, and there are.
        share: Of the machine, at the prices of the linear bound.
        whole: Share of the whole machine, which bounds the value of any task set.
    """

    classes: Ints
    need: Ints
    value: Floats
    most: Ints
    share: Floats
    whole: float


def items(question: KnapsackProblem, value: Floats, traits: Floats | None = None) -> Items | None:
    """Choose and sort the classes of a search; `None` if none of them is worth anything.

    A class is left out if another one needs no more, is worth no less, and is never used up.

    Args:
        question: The search.
        value: Values in place of the question's.
        traits: Further columns per class that must not be larger for one class to replace another.
    """
    capacity, need, counts = question.capacity, question.need, question.counts
    idx = np.flatnonzero((value > 0) & (counts > 0) & (need <= capacity).all(axis=1))
    if not idx.size:
        return None
    need, value, counts, most = need[idx], value[idx], counts[idx], question.most()[idx]
    size: Floats = need.astype(np.float64)
    if traits is not None:
        size = np.hstack([size, traits[idx]])
    kept = np.logical_not(_dominated(size, value, counts >= most))
    idx, need, value = idx[kept], need[kept], value[kept]
    most = np.minimum(most, counts)[kept] if kept.size else most
    fractions = need / np.maximum(capacity, 1)
    prices = dual_prices(fractions, value)
    share = (fractions * prices).sum(axis=1)
    ratio = value / np.maximum(share, _NUMERICAL_ZERO)
    scale = float(ratio.max())
    order = np.argsort(-ratio, kind="stable")
    return Items(
        idx[order],
        need[order],
        value[order],
        most[order],
        share[order] * scale,
        float(prices.sum()) * scale,
    )


def _dominated(need: Floats, value: Floats, plenty: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    smaller = (need[np.newaxis, :, :] <= need[:, np.newaxis, :]).all(axis=2)
    better = smaller & (value[np.newaxis, :] >= value[:, np.newaxis]) & plenty[np.newaxis, :]
    # Of equals the first one stays.
    equal = better & better.T
    earlier = np.tri(len(value), k=-1, dtype=np.bool_)
    return np.asarray(((better & ~equal) | (equal & earlier)).any(axis=1))


def dual_prices(fractions: Floats, value: Floats) -> Floats:
    """Prices of a whole machine's resources at which no task is a bargain.

    The dual of the fractional knapsack, by the simplex method on a row per
    resource. The caller scales the
    result until it is feasible, so rounding does no harm.
    """
    rows, columns = fractions.shape[1], len(value)
    tableau = np.zeros((rows + 1, columns + rows + 1))
    tableau[:rows, :columns] = fractions.T
    tableau[:rows, columns : columns + rows] = np.eye(rows)
    tableau[:rows, -1] = 1.0
    tableau[rows, :columns] = -value
    for _ in range(4 * rows * rows + 50):
        entering = int(np.argmin(tableau[rows, :-1]))
        if tableau[rows, entering] >= -_NUMERICAL_ZERO:
            break
        entries = tableau[:rows, entering]
        usable = entries > _NUMERICAL_ZERO
        if not usable.any():
            break
        ratios = np.where(usable, tableau[:rows, -1] / np.where(usable, entries, 1.0), np.inf)
        leaving = int(np.argmin(ratios))
        tableau[leaving] /= tableau[leaving, entering]
        for row in range(rows + 1):
            if row != leaving:
                tableau[row] -= tableau[row, entering] * tableau[leaving]
    prices = np.maximum(tableau[rows, columns : columns + rows], 0.0)
    # An abundant resource has no price; a small one keeps shares above zero.
    return np.asarray(np.maximum(prices, _NUMERICAL_ZERO))


class RoomBound:
    """Bound on the value that any room can hold, by dynamic programming.

    Demands are rounded down to cells and room is rounded up, so that the bound holds for every
    set that fits. Disk is left out.
    """

    def __init__(self, capacity: Ints, chosen: Items, value: Floats) -> None:
        gpus = int(capacity[0])
        self._cpu = max(int(capacity[1]) // _GRID_CPU_CELLS, 1)
        self._memory = max(int(capacity[2]) // _GRID_MEMORY_CELLS, 1)
        shape = (gpus + 1, int(capacity[1]) // self._cpu + 1, int(capacity[2]) // self._memory + 1)
        table = np.zeros(shape)
        cells = chosen.need[:, :3] // np.array([1, self._cpu, self._memory])
        for need, worth, most in zip(
            cells.tolist(), value.tolist(), chosen.most.tolist(), strict=True
        ):
            remaining, step = most, 1
            while remaining > 0:
                step = min(step, remaining)
                # Multiples up to the next step are in already; if this step is too large, so are
                # larger ones.
                if any(step * amount >= size for amount, size in zip(need, shape, strict=True)):
                    break
                target = table[step * need[0] :, step * need[1] :, step * need[2] :]
                rows, columns, layers = target.shape
                source = table[:rows, :columns, :layers] + step * worth
                np.maximum(target, source, out=target)
                remaining -= step
                step *= 2
        self._strides = (shape[1] * shape[2], shape[2])
        self._flat = table.ravel()
        self._item = self._flat.item

    def bound(self, gpus: int, cpus: int, memory: int) -> float:
        """The most that fits into this room can be worth."""
        row, column = gpus * self._strides[0], cpus // self._cpu * self._strides[1]
        return self._item(row + column + memory // self._memory)


def search(question: KnapsackProblem) -> KnapsackResult:
    """Find sets of tasks that fit and are worth more than was asked for."""
    capacity, need, value, counts = (
        question.capacity,
        question.need,
        question.value,
        question.counts,
    )
    # Tasks that ask for nothing are on board in any case.
    free = (need == 0).all(axis=1) & (value > 0) & (counts > 0)
    base = [(int(number), int(counts[number])) for number in np.flatnonzero(free)]
    extra = 0.0
    for number, count in base:
        extra += float(value[number]) * count
    worth = question.worth - extra
    chosen = items(question, np.where(free, 0.0, value))
    if chosen is None or chosen.whole <= worth:
        whole = 0.0 if chosen is None else chosen.whole
        return KnapsackResult([tuple(base)] if worth < 0 else [], extra + whole, 1)
    grid = RoomBound(capacity, chosen, chosen.value) if capacity[0] else None
    if grid is not None:
        whole = grid.bound(*capacity.tolist()[:3])
        if whole <= worth:
            return KnapsackResult([], extra + whole, 1)
    search = _DepthFirstSearch(chosen, grid, worth, question)
    task_sets, bound, nodes = search.run(capacity)
    return KnapsackResult(
        [tuple(sorted([*base, *task_set])) for task_set in task_sets], extra + bound, nodes
    )


class _DepthFirstSearch:
    """One depth-first search."""

    def __init__(
        self, chosen: Items, grid: RoomBound | None, worth: float, question: KnapsackProblem
    ) -> None:
        self._need = chosen.need.tolist()
        self._value = chosen.value.tolist()
        self._most = chosen.most.tolist()
        self._share = chosen.share.tolist()
        ratio = chosen.value / np.maximum(chosen.share, _NUMERICAL_ZERO)
        self._ratio = [*ratio.tolist(), 0.0]
        self._classes = chosen.classes.tolist()
        self._whole = chosen.whole
        self._grid = grid
        self._limit = question.nodes
        self._sets = question.sets
        self._best = self._bound = worth
        self._nodes = 0
        self._path: list[tuple[int, int]] = []
        self._found: list[TaskSetKey] = []

    def run(self, capacity: Ints) -> tuple[list[TaskSetKey], float, int]:
        gpus, cpus, memory, *disk = capacity.tolist()
        self._descend(0, (gpus, cpus, memory, *disk), self._whole, 0.0)
        return self._found[-SETS_KEPT:], max(self._best, self._bound), self._nodes

    def _descend(self, first: int, room: tuple[int, ...], share: float, value: float) -> None:
        """Add tasks of the classes from `first` on to what is on the path."""
        grid, ratio = self._grid, self._ratio
        gpus, cpus, memory, *disk = room
        for item in range(first, len(self._classes)):
            if value + share * ratio[item] <= self._best:
                return
            if not self._sets.left:
                # Whatever the others add is bounded by the next one's ratio.
                self._bound = max(self._bound, value + share * ratio[item])
                return
            self._sets.spend(WorkKind.SET, COUNTED_AS)
            need = self._need[item]
            for count in range(self._fitting(item, room), 0, -1):
                self._nodes += 1
                rest = gpus - count * need[0], cpus - count * need[1], memory - count * need[2]
                more = (disk[0] - count * need[3],) if disk else ()
                reached = value + count * self._value[item]
                spare = share - count * self._share[item]
                self._path.append((self._classes[item], count))
                if reached > self._best:
                    self._best = reached
                    self._found.append(tuple(self._path))
                bound = reached + spare * ratio[item + 1]
                if bound > self._best and grid is not None:
                    bound = min(bound, reached + grid.bound(*rest))
                if bound > self._best:
                    if self._nodes < self._limit:
                        self._descend(item + 1, rest + more, spare, reached)
                    else:
                        self._bound = max(self._bound, bound)
                self._path.pop()

    def _fitting(self, item: int, room: tuple[int, ...]) -> int:
        most: int = self._most[item]
        for amount, free in zip(self._need[item], room, strict=True):
            if amount:
                most = min(most, free // amount)
        return most
