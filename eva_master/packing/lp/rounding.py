"""From a solution of the configuration LP to whole instances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eva_master.model.catalog import Offering
from eva_master.packing.greedy.algorithm1 import PackedSet, Supply, pack, smallest
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.lp.column_generation import EffortLimits, Generated, PackingRequest
from eva_master.packing.lp.columns import Column, columns_of, cost
from eva_wire.values.ids import MILLION, OfferingId

_TRIED_IF_NONE_IS_WHOLE = 32
"""Columns tried in a dive when no amount is whole."""
_WHOLE_MARGIN = 1e-6
"""How far from a whole number an amount may be and still count as one."""


@dataclass(frozen=True, slots=True)
class Packing:
    """A whole packing.

    Attributes:
        sets: That hold all tasks.
        cost: See `Column.cost`.
    """

    sets: list[PackedSet]
    cost: int


def rounded(
    request: PackingRequest, generated: Generated, best: Packing, budget: EffortLimits
) -> Packing:
    """Look for a packing that costs less than the best one known.

    First the LP's amounts are rounded down and Algorithm 1 packs the rest; then, if that is not
    close enough to the bound, HiGHS looks for the best choice among the columns that may be in one,
    beginning with the best packing so far.

    Args:
        request: The tasks to pack.
        generated: The LP.
        best: A packing.
        budget: Limits of effort.
    """
    counts = request.counts
    for trim in (True, False):
        generated.relaxation.require(counts, _limited(request.supply))
        best = _dive(_Partial(request, trim=trim), generated, best, budget)
    generated.relaxation.add(columns_of(request.problem, best.sets))
    near = best.cost <= generated.cost * (1 + budget.integer_gap)
    if near or np.count_nonzero(counts) > budget.integer_classes:
        return best
    return _integral(request, generated, best, budget)


class _Partial:
    """A packing in the making."""

    def __init__(self, request: PackingRequest, *, trim: bool) -> None:
        self._problem = request.problem
        self._trim = trim
        self.left = request.counts.copy()
        self.supply = dict(request.supply)
        self.sets: list[PackedSet] = []

    def take(self, column: Column, wanted: int) -> int:
        """Use a column as often as tasks, supply and `wanted` allow; returns how often that is.

        The LP may cover a task more than once. Where a class is used up the rest of the task set
        is taken if task sets are to be trimmed, on the cheapest offering that holds it, as long
        as that pays.
        """
        taken, offering = 0, column.offering
        task_set = dict(column.task_set)
        while taken < wanted:
            clipped = {t: min(n, int(self.left[t])) for t, n in task_set.items() if self.left[t]}
            if clipped != task_set:
                if not self._trim:
                    break
                task_set = clipped
                cheaper = smallest(self._problem, task_set, self.supply, offering)
                offering = cheaper or offering
                if not task_set or not self._pays(offering, task_set):
                    break
            limit = self.supply.get(offering.id, 0)
            times = min(wanted - taken, *(int(self.left[t]) // n for t, n in task_set.items()))
            if limit is not None:
                times = min(times, limit)
                self.supply[offering.id] = limit - times
            if not times:
                break
            self.sets.append(PackedSet(offering, task_set, times))
            for task, count in task_set.items():
                self.left[task] -= times * count
            taken += times
        return taken

    def _pays(self, offering: Offering, task_set: TaskSet) -> bool:
        return self._problem.value(task_set, offering.type.family) >= offering.price * MILLION

    def completed(self) -> Packing | None:
        """Pack the rest by Algorithm 1; `None` if it does not fit."""
        sets = self.sets
        if self.left.any():
            rest, unplaced = pack(self._problem, self.left, self.supply)
            if unplaced.any():
                return None
            sets = [*sets, *rest]
        return Packing(sets, cost(self._problem, sets))


def _limited(supply: Supply) -> dict[OfferingId, int]:
    return {name: limit for name, limit in supply.items() if limit is not None}


def _dive(partial: _Partial, generated: Generated, best: Packing, budget: EffortLimits) -> Packing:
    """Round down, solve the LP for what is left over, and again, packing the rest each time."""
    relaxation, relaxed = generated.relaxation, generated.relaxed
    for _ in range(budget.dives):
        amounts = relaxed.amounts
        taken = 0
        for number in np.flatnonzero(amounts >= 1 - _WHOLE_MARGIN).tolist():
            whole = int(amounts[number] + _WHOLE_MARGIN)
            taken += partial.take(relaxation.columns[number], whole)
        if not taken:
            # By fraction, and of equals the first.
            for number in np.argsort(-amounts, kind="stable")[:_TRIED_IF_NONE_IS_WHOLE].tolist():
                taken += partial.take(relaxation.columns[number], 1)
                if taken:
                    break
        packing = partial.completed()
        if packing is not None and packing.cost < best.cost:
            best = packing
        if not taken or not partial.left.any():
            break
        if best.cost <= generated.cost * (1 + budget.integer_gap):
            break
        relaxation.require(partial.left, _limited(partial.supply))
        again = relaxation.solve()
        if again is None:
            break
        relaxed = again
    return best


def _integral(
    request: PackingRequest, generated: Generated, best: Packing, budget: EffortLimits
) -> Packing:
    """Ask HiGHS for better whole numbers of the columns that could be part of a better packing."""
    relaxation = generated.relaxation
    start = relaxation.numbers(best.sets)
    spare = best.cost - generated.bound
    reduced = generated.reduced_costs()
    order = sorted(range(len(reduced)), key=lambda number: (not start[number], reduced[number]))
    # In a cheaper packing no column has a reduced cost above the gap.
    chosen = [n for n in order if start[n] or reduced[n] <= spare][: budget.integer_columns]
    amounts = relaxation.integral(chosen, [start[n] for n in chosen], budget.integer_nodes)
    if amounts is None:
        return best
    numbers = [0] * len(relaxation.columns)
    for number, amount in zip(chosen, amounts, strict=True):
        numbers[number] = amount
    partial = _Partial(request, trim=True)
    for column, amount in zip(relaxation.columns, numbers, strict=True):
        if amount:
            partial.take(column, amount)
    packing = partial.completed()
    return packing if packing is not None and packing.cost < best.cost else best
