"""Costs of the whole cluster, in exact integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.accounting.pool_costs import PoolCost
from eva_wire.values.ids import Exact


@dataclass(frozen=True, slots=True)
class CostSums:
    """Costs of the whole cluster up to a moment.

    Attributes:
        charged: The cloud's charges.
        idle: The part of `charged` that no task used.
        alone: The cost of the same work with one instance per task.
        pools: The parts of `charged` and `idle` of instances since they stood in a pool, by pool.
        kept: The part of `idle` of instances that had emptied and were kept for waiting tasks.
    """

    charged: Exact
    idle: Exact
    alone: Exact
    pools: Mapping[str, PoolCost]
    kept: Exact = Exact(0)
