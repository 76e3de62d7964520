"""Own nodes in the pools of a front policy that its jobs have no use for, while others wait.

A pool of own nodes has all of them as members, busy or not: nothing would be saved without them.
Behind it stands a policy that has no other room where nothing can be bought.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from eva_master.model.catalog import InstanceType, Purchase
from eva_master.model.job import TaskSpec
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.valuation.reservation_price import Demand
from eva_wire.values.ids import InstanceId


def spare_nodes(front: Snapshot, plan: Plan, back: Snapshot) -> frozenset[InstanceId]:
    """Empty own nodes in pools, beyond those that the front policy's waiting tasks need.

    Args:
        front: Its part of the cluster.
        plan: Its plan.
        back: The part of the policy behind; if nothing waits there, no node is spare.
    """
    if None not in [run.instance for run in back.runs]:
        return frozenset()
    placed = {entry.run: entry.on for entry in plan.entries if isinstance(entry, Assign)}
    used = {*placed.values()}
    members = {member for pool in plan.pools for member in pool.members}
    empty = {
        view.id: view.offering.type
        for view in front.instances
        if view.offering.purchase is Purchase.OWNED
        and view.id in members
        and view.id not in used
        and not view.residents
    }
    tasks = (run.task for run in front.runs if run.instance is None and run.id not in placed)
    return frozenset(empty.keys() - _needed(tasks, empty))


def _needed(tasks: Iterable[TaskSpec], empty: Mapping[InstanceId, InstanceType]) -> set[InstanceId]:
    """The nodes on which tasks find room one after the other."""
    free: dict[InstanceId, Resources] = {}
    full: set[Demand] = set()
    for task in tasks:
        if len(free) == len(empty):
            break
        if task.demand in full:
            continue
        for name, kind in empty.items():
            need, room = task.demand_on(kind.family), free.get(name, kind.capacity)
            if need is not None and need.fits(room):
                free[name] = room - need
                break
        else:
            full.add(task.demand)
    return {*free}


def without_members(plan: Plan, nodes: Set[InstanceId]) -> Plan:
    """A plan whose pools leave some members out."""
    if not nodes:
        return plan
    pools = (
        replace(
            pool,
            members=tuple(member for member in pool.members if member not in nodes),
            closed=tuple(member for member in pool.closed if member not in nodes),
        )
        for pool in plan.pools
    )
    return replace(plan, pools=tuple(pool for pool in pools if pool.members))


def taken(plan: Plan, nodes: Set[InstanceId]) -> frozenset[InstanceId]:
    """Some nodes, without those that a plan makes no use of."""
    if not nodes:
        return frozenset()
    used = {entry.on for entry in plan.entries if isinstance(entry, Assign)}
    used |= {member for pool in plan.pools for member in pool.members}
    return frozenset(nodes & used)
