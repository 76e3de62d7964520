"""The solver of linear programmes, HiGHS, as Eva uses it.

Always in one thread and with a fixed seed, and never against a clock, so that the same programme
has the same solution everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import highspy
import numpy as np

from eva_master.packing.lp.pricing.knapsack import Floats

DUAL_SIMPLEX, PRIMAL_SIMPLEX = 1, 4
INFINITY = highspy.kHighsInf
Entries = tuple[float, list[int], list[float]]
"""A column: its cost, its rows, and its values there."""


def solver() -> highspy.Highs:
    """A solver without rows and columns."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    for option, value in (
        ("threads", 1),
        ("parallel", "off"),
        ("random_seed", 0),
        ("presolve", "off"),
        ("simplex_strategy", PRIMAL_SIMPLEX),
    ):
        highs.setOptionValue(option, value)
    return highs


def add_rows(to: highspy.Highs, lower: Floats, upper: Floats) -> None:
    """Add empty rows.

    Args:
        to: The solver.
        lower: Lower bound of each.
        upper: Upper bound of each.
    """
    rows = len(lower)
    empty = np.zeros(0, dtype=np.int32)
    starts = np.zeros(rows, dtype=np.int32)
    to.addRows(rows, lower, upper, 0, starts, empty, np.zeros(0))


def add_columns(to: highspy.Highs, columns: Sequence[Entries]) -> None:
    """Add columns, whose amounts are not negative, to rows that are there."""
    size = len(columns)
    if not size:
        return
    starts = np.cumsum([0, *(len(rows) for _, rows, _ in columns)])
    to.addCols(
        size,
        np.array([cost for cost, _, _ in columns]),
        np.zeros(size),
        np.full(size, INFINITY),
        int(starts[-1]),
        starts[:-1].astype(np.int32),
        np.array([row for _, rows, _ in columns for row in rows], dtype=np.int32),
        np.array([value for _, _, values in columns for value in values]),
    )
