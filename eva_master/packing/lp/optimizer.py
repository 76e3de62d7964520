"""Packing as well as asked for: Algorithm 1 alone, or the configuration LP on top of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from eva_master.packing.greedy.algorithm1 import PackedSet, Supply, pack
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.column_generation import (
    EffortLimits,
    Generated,
    Generator,
    PackingRequest,
)
from eva_master.packing.lp.columns import Column, TaskSetKey, column, columns_of, cost
from eva_master.packing.lp.pricing.knapsack import Floats
from eva_master.packing.lp.rounding import Packing, rounded
from eva_master.packing.problem import Problem
from eva_master.packing.round_work import WorkBudget
from eva_wire.values.ids import OfferingId

_LEAST_AMOUNT_USED = 1e-9


class Tier(StrEnum):
    """The algorithm that packings are made by."""

    GREEDY = "greedy"
    """Algorithm 1."""
    LP = "lp"
    """Whichever is cheaper of Algorithm 1 and a rounded solution of the configuration LP."""
    AUTO = "auto"
    """``lp`` unless there are too many classes for it."""


@dataclass(frozen=True, slots=True)
class Seed:
    """A column that paid in an earlier round, without its cost, which may have changed."""

    offering: OfferingId
    task_set: TaskSetKey


@dataclass(slots=True)
class EffortSpent:
    """Effort spent, summed over all packings made.

    Attributes:
        iterations: Iterations of column generation.
        nodes: Nodes of the searches for columns.
        columns: Columns in the LPs.
    """

    iterations: int = 0
    nodes: int = 0
    columns: int = 0


class Optimizer:
    """Packs tasks of one problem; columns found for one packing serve the next.

    Args:
        problem: The packing problem, with its classes.
        tier: The method.
        seeds: Columns from earlier rounds.
        budget: Limits of effort.
        sets: Limit of all its searches together, in sets; after it, packings use the columns found
            until then.

    Attributes:
        effort: Effort spent so far.
    """

    def __init__(
        self,
        problem: Problem,
        tier: Tier,
        seeds: Iterable[Seed] = (),
        budget: EffortLimits | None = None,
        *,
        sets: WorkBudget | None = None,
    ) -> None:
        self._problem = problem
        self._tier = tier
        self._budget = budget or EffortLimits()
        self._sets = sets or WorkBudget()
        self._known: dict[tuple[OfferingId, TaskSetKey], Column] = {}
        self._remember(self._columns(seeds))
        self._duals: dict[int, int] = {}
        self._solved: dict[object, Generated | None] = {}
        self._packed: dict[object, Packing] = {}
        self.effort = EffortSpent()

    def pack(self, counts: Ints, supply: Supply) -> tuple[list[PackedSet], Ints]:
        """Choose instances for tasks.

        Args:
            counts: Tasks to place, per class.
            supply: Instances that may be bought, as in `algorithm1.pack`.

        Returns:
            The sets and the tasks without a place, as `algorithm1.pack` returns them.
        """
        sets, rest = pack(self._problem, counts, supply)
        placed = counts - rest
        if sets and self._applies(placed):
            sets = self._optimal(placed, supply, sets)
        return sets, rest

    def bound(self, counts: Ints, supply: Supply) -> int | None:
        """Lower bound of the cost of any packing of tasks; see `Column.cost`.

        Args:
            counts: Tasks, per class.
            supply: Instances that may be bought, as in `algorithm1.pack`.

        Returns:
            `None` if unknown: the tasks do not all fit, or the LP is not to be solved.
        """
        if not counts.any():
            return 0
        if not self._applies(counts):
            return None
        sets, rest = pack(self._problem, counts, supply)
        if rest.any():
            return None
        generated = self._generated(counts, supply, sets)
        return 0 if generated is None else generated.bound

    def recall(self, seeds: Iterable[Seed], duals: Mapping[int, int]) -> None:
        """Start from the columns and duals that proved an earlier bound.

        Args:
            seeds: The columns.
            duals: The result of `duals` at that time, by present class number.
        """
        self._remember(self._columns(seeds))
        self._duals.update(duals)

    def tight(self, counts: Ints, supply: Supply) -> bool:
        """Whether `bound`, which has been asked for, cannot be any better."""
        generated = self._solved.get(_key(counts, supply))
        return generated is not None and generated.tight(self._budget)

    def seeds(self, limit: int) -> list[Seed]:
        """Columns for the next round, at most `limit`; lone tasks need none."""
        shared = [key for key in self._known if sum(count for _, count in key[1]) > 1]
        return [Seed(offering, task_set) for offering, task_set in shared[:limit]]

    @property
    def duals(self) -> Mapping[int, int]:
        """Cost of covering a task of a class, in micro-dollars per hour; for the next round."""
        return self._duals

    def _guess(self, counts: Ints) -> Floats | None:
        """The recalled duals as an array, if they are known for most classes."""
        if not self._most(counts):
            return None
        wanted = np.flatnonzero(counts).tolist()
        recalled = [number for number in wanted if number in self._duals]
        if 2 * len(recalled) <= len(wanted):
            return None
        duals = np.full(len(counts), np.nan)
        duals[recalled] = [float(self._duals[number]) for number in recalled]
        return duals

    def _most(self, counts: Ints) -> bool:
        """Whether these are most tasks of the problem; duals of a few say little of all others."""
        return 2 * int(counts.sum()) >= len(self._problem.class_of)

    def _applies(self, counts: Ints) -> bool:
        few = np.count_nonzero(counts) <= self._budget.classes
        return self._tier is Tier.LP or (self._tier is Tier.AUTO and bool(few))

    def _optimal(self, counts: Ints, supply: Supply, sets: list[PackedSet]) -> list[PackedSet]:
        """The best packing that the budget finds, no worse than `sets`."""
        key = _key(counts, supply)
        if key not in self._packed:
            packing = Packing(sets, cost(self._problem, sets))
            generated = self._generated(counts, supply, sets)
            if generated is not None:
                request = PackingRequest(self._problem, counts, supply)
                packing = rounded(request, generated, packing, self._budget)
                self._remember(columns_of(self._problem, packing.sets))
            self._packed[key] = packing
        return self._packed[key].sets

    def _generated(self, counts: Ints, supply: Supply, sets: list[PackedSet]) -> Generated | None:
        """The configuration LP; `None` if it has no solution within the budget."""
        key = _key(counts, supply)
        if key not in self._solved:
            request = PackingRequest(self._problem, counts, supply, self._guess(counts))
            generated = Generator(request, sets=self._sets).run(
                [*columns_of(self._problem, sets), *self._usable(counts, supply)], self._budget
            )
            if generated is not None:
                self._account(generated)
                if self._most(counts):
                    for number in np.flatnonzero(counts).tolist():
                        self._duals[number] = round(float(generated.duals[number]))
                self._remember(_supporting(generated))
            self._solved[key] = generated
        return self._solved[key]

    def _usable(self, counts: Ints, supply: Supply) -> list[Column]:
        """Columns found before, and every task alone."""
        columns = [
            earlier
            for earlier in self._known.values()
            if supply.get(earlier.offering.id, 0) != 0
            and all(count <= counts[number] for number, count in earlier.task_set)
        ]
        for number in np.flatnonzero(counts > 0).tolist():
            offering = self._problem.reservation(number)
            if offering is not None and supply.get(offering.id, 0) != 0:
                columns.append(column(self._problem, offering, ((number, 1),)))
        return columns

    def _columns(self, seeds: Iterable[Seed]) -> Iterator[Column]:
        """The seeds that are still on sale, and fit."""
        problem = self._problem
        for seed in seeds:
            if seed.offering in problem.by_id and problem.fits(seed.offering, dict(seed.task_set)):
                yield column(problem, problem.by_id[seed.offering], seed.task_set)

    def _remember(self, columns: Iterable[Column]) -> None:
        """Put columns before those remembered already."""
        fresh = {(entry.offering.id, entry.task_set): entry for entry in columns}
        self._known = {**fresh, **self._known}

    def _account(self, generated: Generated) -> None:
        self.effort.iterations += generated.iterations
        self.effort.nodes += generated.nodes
        self.effort.columns += len(generated.relaxation.columns)


def _supporting(generated: Generated) -> list[Column]:
    """The columns of the LP's solution."""
    amounts = generated.relaxed.amounts
    return [
        generated.relaxation.columns[n]
        for n in np.flatnonzero(amounts > _LEAST_AMOUNT_USED).tolist()
    ]


def _key(counts: Ints, supply: Supply) -> object:
    return counts.tobytes(), tuple(sorted(supply.items()))
