"""The assignment problem, compiled: `assign.c`.

The kernel decides what SciPy's solver decides, ties included; loading that takes a quarter of a
second of each process.
"""

from __future__ import annotations

import numpy as np

from eva_master.packing.compiled.library import library
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.pricing.knapsack import Floats

Pairs = tuple[list[int], list[int]]
"""Rows, ascending, and the column of each."""


def assigned(gains: Ints | Floats) -> Pairs:
    """Choose as many cells as there can be, one in a row and a column, that gain most together.

    Args:
        gains: A finite gain for each cell.

    Raises:
        MemoryError: There is too little memory.
    """
    opened = library()
    if opened is None or not gains.size:
        return assigned_by_scipy(gains)
    upright = gains.shape[0] > gains.shape[1]
    cost = np.ascontiguousarray(-(gains.T if upright else gains), dtype=np.float64)
    chosen = np.empty(len(cost), dtype=np.int64)
    if opened.assign(*cost.shape, cost.ctypes.data, chosen.ctypes.data):
        raise MemoryError("The assignment of tasks to instances had too little memory.")
    if not upright:
        return list(range(len(cost))), chosen.tolist()
    order = np.argsort(chosen)
    return chosen[order].tolist(), order.tolist()


def assigned_by_scipy(gains: Ints | Floats) -> Pairs:
    """`assigned` where nothing is compiled."""
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    rows, columns = linear_sum_assignment(gains, maximize=True)
    return rows.tolist(), columns.tolist()
