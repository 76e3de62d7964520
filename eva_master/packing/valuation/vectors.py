"""Demands of tasks and capacities of machines as rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eva_master.model.resources import Resources
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.valuation.reservation_price import Demand
from eva_wire.values.ids import Family

IMPOSSIBLE = 1 << 40
"""Need of a task on a family that cannot host it: more than any instance has."""


Vector = tuple[int, int, int, int]
"""GPUs, milli-CPUs, MiB of memory, MiB of disk."""
WIDTH = 4
"""Length of a `Vector`."""
NOWHERE: Vector = (IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE, IMPOSSIBLE)
"""`Vector` of a task on a family that cannot host it."""


def vector(amount: Resources) -> Vector:
    """An amount as a row."""
    return amount.gpus, amount.milli_cpus, amount.memory_mib, amount.disk_mib


def needs_on(demands: Sequence[Demand], family: Family) -> Ints:
    """Demands on a family, a row each."""
    rows = np.full((len(demands), WIDTH), IMPOSSIBLE, dtype=np.int64)
    for row, demand in enumerate(demands):
        for name, need in demand:
            if name == family:
                rows[row] = vector(need)
    return rows
