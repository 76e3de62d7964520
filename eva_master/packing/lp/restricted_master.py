"""The restricted configuration LP, and its integer version, solved by HiGHS.

Always in one thread and with a fixed seed, and never against a clock, so that the same columns give
the same solution everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from eva_master.model.ids import OfferingId
from eva_master.packing.greedy.algorithm1 import PackedSet
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.columns import Column, TaskSetKey
from eva_master.packing.lp.pricing.knapsack import Floats

_DUAL_SIMPLEX, _PRIMAL_SIMPLEX = 1, 4
_INFINITY = highspy.kHighsInf


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
        lower, upper = np.full(rows, -_INFINITY), np.full(rows, _INFINITY)
        lower[: len(self._row)] = counts[self._classes]
        upper[len(self._row) :] = [limits[name] for name in sorted(limits)]
        self._lower, self._upper = lower, upper
        self._solver = _solver()
        _add_rows(self._solver, lower, upper)
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
        _add_columns(self._solver, [self._entries(column) for column in fresh])
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

    def require(self, counts: Ints, limits: Mapping[OfferingId, int]) -> None:
        """Go on with other numbers of tasks and other limits."""
        lower, upper = self._lower.copy(), self._upper.copy()
        lower[: len(self._row)] = counts[self._classes]
        upper[len(self._row) :] = [limits[name] for name in self._rents]
        for row, (least, most) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
            self._solver.changeRowBounds(row, least, most)
        self._solver.setOptionValue("simplex_strategy", _DUAL_SIMPLEX)

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
            chosen: Their numbers.
            start: How many of each there are in a solution that is known.
            nodes: How many nodes to look at, at most.

        Returns:
            How many of each there are in the best solution found, `None` if there is none.
        """
        solver = _solver()
        _add_rows(solver, self._lower, self._upper)
        _add_columns(solver, [self._entries(self.columns[number]) for number in chosen])
        size = len(chosen)
        solver.changeColsIntegrality(
            size,
            np.arange(size, dtype=np.int32),
            np.full(size, int(highspy.HighsVarType.kInteger), dtype=np.uint8),
        )
        solver.setOptionValue("presolve", "choose")
        solver.setOptionValue("mip_max_nodes", nodes)
        solver.setOptionValue("mip_rel_gap", 1e-6)
        known = highspy.HighsSolution()
        known.col_value = [float(number) for number in start]
        solver.setSolution(known)
        solver.run()
        values = solver.getSolution().col_value
        if len(values) != size or solver.getInfo().primal_solution_status != 2:
            return None
        return [round(value) for value in values]

    def _entries(self, column: Column) -> tuple[float, list[int], list[float]]:
        rows = [self._row[number] for number, _ in column.task_set]
        values = [float(count) for _, count in column.task_set]
        rent = self._rents.get(column.offering.id)
        if rent is not None:
            rows.append(rent)
            values.append(1.0)
        return column.cost / self._unit, rows, values


def _solver() -> highspy.Highs:
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    for option, value in (
        ("threads", 1),
        ("parallel", "off"),
        ("random_seed", 0),
        ("presolve", "off"),
        ("simplex_strategy", _PRIMAL_SIMPLEX),
    ):
        solver.setOptionValue(option, value)
    return solver


def _add_rows(solver: highspy.Highs, lower: Floats, upper: Floats) -> None:
    rows = len(lower)
    empty = np.zeros(0, dtype=np.int32)
    starts = np.zeros(rows, dtype=np.int32)
    solver.addRows(rows, lower, upper, 0, starts, empty, np.zeros(0))


def _add_columns(
    solver: highspy.Highs, columns: Sequence[tuple[float, list[int], list[float]]]
) -> None:
    size = len(columns)
    if not size:
        return
    starts = np.cumsum([0, *(len(rows) for _, rows, _ in columns)])
    solver.addCols(
        size,
        np.array([cost for cost, _, _ in columns]),
        np.zeros(size),
        np.full(size, _INFINITY),
        int(starts[-1]),
        starts[:-1].astype(np.int32),
        np.array([row for _, rows, _ in columns for row in rows], dtype=np.int32),
        np.array([value for _, _, values in columns for value in values]),
    )
