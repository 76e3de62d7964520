"""Costs of the whole cluster, in exact integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.accounting.pool_costs import PoolCost
from eva_master.model.ids import Exact


@dataclass(frozen=True, slots=True)
class CostSums:
    """Costs of the whole cluster up to a moment.

    Attributes:
        charged: What the cloud charges.
        idle: The part of it that no task used.
        alone: What one instance per task would have cost.
        pools: What of `charged` and `idle` is for instances since they stood in a pool, by pool.
        kept: The part of `idle` of instances that had emptied, and stayed for tasks that waited.
    """

    charged: Exact
    idle: Exact
    alone: Exact
    pools: Mapping[str, PoolCost]
    kept: Exact = Exact(0)
