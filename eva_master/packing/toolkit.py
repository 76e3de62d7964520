"""What policies are built of that fill instances one by one, for packages outside this one.

A round goes like this, and `examples/policy_template` has it in full::

    groups = waiting(snapshot)
    instances = open_instances(snapshot, self._shapes)
    stuck = place(instances, groups, placing)
    return build_plan(snapshot, instances, stuck, undisturbed), memory

`placing` is the policy's own: it puts task runs on instances by `OpenInstances.put`, and takes new
ones by `OpenInstances.open`. What it leaves without a place is held, with a reason; gangs are
placed whole or not at all.

What is named here stays: other modules of `eva_master.packing` may change at any time.
"""

from __future__ import annotations

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import Rooms as OpenInstances
from eva_master.packing.bins.placement_groups import Stuck, place, waiting
from eva_master.packing.bins.placement_groups import Unit as PlacementGroup
from eva_master.packing.bins.plan_builder import Shift, shift, undisturbed
from eva_master.packing.bins.plan_builder import outcome as build_plan
from eva_master.packing.bins.replan_trigger import occasion as replan_due
from eva_master.packing.problem import unprofiled
from eva_master.packing.valuation.task_shapes import Appraiser as ShapeCache
from eva_master.packing.valuation.task_shapes import Kind as TaskShape

__all__ = [
    "OpenInstances",
    "PlacementGroup",
    "ShapeCache",
    "Shift",
    "Stuck",
    "TaskShape",
    "build_plan",
    "open_instances",
    "place",
    "replan_due",
    "shift",
    "undisturbed",
    "unprofiled",
    "waiting",
]


def open_instances(snapshot: Snapshot, shapes: ShapeCache) -> OpenInstances:
    """The instances of a snapshot with what is free on each, for one plan to fill.

    Args:
        snapshot: The cluster.
        shapes: Kept by the policy from round to round, so that prices are worked out once.
    """
    return OpenInstances(snapshot, shapes.appraisal(snapshot))
