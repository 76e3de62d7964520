"""Toolkit of policies that fill instances one by one, for packages outside this one.

A round goes like this, and `examples/policy_template` has it in full::

    groups = waiting(snapshot)
    instances = open_instances(snapshot, self._cache)
    unplaced = place(instances, groups, placing)
    return build_plan(snapshot, instances, unplaced, without_interference), memory

The policy supplies `placing`: it puts task runs on instances by `OpenInstances.put`, and takes new
ones by `OpenInstances.open`. Task runs that it leaves without a place are held, with a reason;
gangs are placed whole or not at all.

Names in this module are stable: other modules of `eva_master.packing` may change at any time.
"""

from __future__ import annotations

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing import profiling
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.own_nodes import NODES, FirstRoom, OwnNodes
from eva_master.packing.bins.placement_groups import PlacementGroup, UnplacedGroup, place, waiting
from eva_master.packing.bins.plan_builder import (
    JointMove,
    build_plan,
    joint_move,
    without_interference,
)
from eva_master.packing.bins.replan_trigger import replan_due
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.valuation.reservation_price import Speeds
from eva_master.packing.valuation.task_classes import PricedShape
from eva_master.packing.valuation.time_left import with_current_estimates
from eva_wire.values.ids import RunId

__all__ = [
    "NODES",
    "FirstRoom",
    "JointMove",
    "OpenInstances",
    "OwnNodes",
    "PlacementGroup",
    "PlannerCache",
    "PricedShape",
    "Speeds",
    "UnplacedGroup",
    "build_plan",
    "with_current_estimates",
    "joint_move",
    "open_instances",
    "place",
    "replan_due",
    "unprofiled",
    "waiting",
    "without_interference",
]


def open_instances(snapshot: Snapshot, cache: PlannerCache) -> OpenInstances:
    """The instances of a snapshot with what is free on each, for one plan to fill.

    Args:
        snapshot: The cluster.
        cache: Kept by the policy from round to round, so that prices are worked out once.
    """
    return OpenInstances(snapshot, cache.snapshot_shapes(snapshot))


def unprofiled(snapshot: Snapshot, cache: PlannerCache) -> frozenset[RunId]:
    """Task runs that are to be alone until the throughput of their workload has been measured.

    Of each workload that is one task or gang; the others may be packed meanwhile.

    Args:
        snapshot: The cluster.
        cache: As in `open_instances`.
    """
    return profiling.unprofiled(snapshot, cache.measured_rates(snapshot.standalone))
