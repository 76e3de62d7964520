"""The restricted configuration LP, and its integer version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from eva_master.packing.greedy.algorithm1 import PackedSet
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.columns import Column, TaskSetKey
from eva_master.packing.lp.pricing.knapsack import Floats
from eva_master.packing.lp.solver import (
    DUAL_SIMPLEX,
    INFINITY,
    Entries,
    add_columns,
    add_rows,
    solver,
)
from eva_wire.values.ids import OfferingId


@dataclass(frozen=True, slots=True)
class Relaxed:
    """An optimal solution of the LP over some columns.

    Attributes:
        cost: Of the solution, in the unit of the costs.
        amounts: Of each column.
        duals: Of each class: what covering one more of its tasks costs.
        rents: Of each row of supply: what one instance more would save, not positive.
    """

    cost: float
    amounts: Floats
    duals: Floats
    rents: Floats


class Relaxation:
    """Minimise the cost of columns such that every task is covered and supply is kept.

    Args:
        counts: Tasks per class; classes without tasks have no row.
        limits: Row number by offering, and how many instances it may have.
        unit: Costs are divided by it.
    """

    def __init__(self, counts: Ints, limits: Mapping[OfferingId, int], unit: float) -> None:
        self._unit = unit
        self._classes = np.flatnonzero(counts > 0)
        self._row = {int(number): row for row, number in enumerate(self._classes)}
        self._size = len(counts)
        self._rents = {name: len(self._row) + row for row, name in enumerate(sorted(limits))}
        rows = len(self._row) + len(self._rents)
        lower, upper = np.full(rows, -INFINITY), np.full(rows, INFINITY)
        lower[: len(self._row)] = counts[self._classes]
        upper[len(self._row) :] = [limits[name] for name in sorted(limits)]
        self._lower, self._upper = lower, upper
        self._solver = solver()
        add_rows(self._solver, lower, upper)
        self.columns: list[Column] = []
        self._known: dict[tuple[OfferingId, TaskSetKey], int] = {}

    def add(self, columns: Sequence[Column]) -> int:
        """Add the columns that are new; returns how many these are."""
        fresh: list[Column] = []
        for column in columns:
            key = (column.offering.id, column.task_set)
            if key not in self._known:
                self._known[key] = len(self.columns) + len(fresh)
                fresh.append(column)
        add_columns(self._solver, [self._entries(column) for column in fresh])
        self.columns.extend(fresh)
        return len(fresh)

    def solve(self) -> Relaxed | None:
        """Solve the LP; `None` if it has no solution."""
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._solver.getSolution()
        prices = np.array(solution.row_dual)
        duals = np.zeros(self._size)
        duals[self._classes] = np.maximum(prices[: len(self._row)], 0.0)
        return Relaxed(
            self._solver.getObjectiveValue(),
            np.array(solution.col_value),
            duals,
            np.minimum(prices[len(self._row) :], 0.0),
        )

    def require(self, counts: Ints, limits: Mapping[OfferingId, float]) -> None:
        """Go on with other numbers of tasks and other limits."""
        lower, upper = self._lower.copy(), self._upper.copy()
        lower[: len(self._row)] = counts[self._classes]
        upper[len(self._row) :] = [limits[name] for name in self._rents]
        for row, (least, most) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
            self._solver.changeRowBounds(row, least, most)
        self._solver.setOptionValue("simplex_strategy", DUAL_SIMPLEX)

    def rent_of(self, rents: Floats) -> dict[OfferingId, float]:
        """Find `Relaxed.rents` by the offering's id."""
        return dict(zip(self._rents, rents.tolist(), strict=True))

    def numbers(self, sets: Sequence[PackedSet]) -> list[int]:
        """How many of each column there are in sets; their columns must have been added."""
        numbers = [0] * len(self.columns)
        for packed in sets:
            task_set = tuple(sorted(packed.task_set.items()))
            numbers[self._known[packed.offering.id, task_set]] += packed.times
        return numbers

    def integral(self, chosen: Sequence[int], start: Sequence[int], nodes: int) -> list[int] | None:
        """Solve the integer programme over some of the columns.

        Args:
            chosen: Numbers of these columns.
            start: How many of each there are in a known solution.
            nodes: Upper limit of the nodes to examine.

        Returns:
            Number of each in the best solution found, `None` if there is none.
        """
        integer = solver()
        add_rows(integer, self._lower, self._upper)
        add_columns(integer, [self._entries(self.columns[number]) for number in chosen])
        size = len(chosen)
        integer.changeColsIntegrality(
            size,
            np.arange(size, dtype=np.int32),
            np.full(size, int(highspy.HighsVarType.kInteger), dtype=np.uint8),
        )
        integer.setOptionValue("presolve", "choose")
        integer.setOptionValue("mip_max_nodes", nodes)
        integer.setOptionValue("mip_rel_gap", 1e-6)
        known_solution = highspy.HighsSolution()
        known_solution.col_value = [float(number) for number in start]
        integer.setSolution(known_solution)
        integer.run()
        values = integer.getSolution().col_value
        if len(values) != size or integer.getInfo().primal_solution_status != 2:
            return None
        return [round(value) for value in values]

    def _entries(self, column: Column) -> Entries:
        rows = [self._row[number] for number, _ in column.task_set]
        values = [float(count) for _, count in column.task_set]
        rent = self._rents.get(column.offering.id)
        if rent is not None:
            rows.append(rent)
            values.append(1.0)
        return column.cost / self._unit, rows, values
