"""The part of a plan's pools and lines that can be carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, Plan, Suspend, pooled
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.packing.plan_effect import without_unused
from eva_master.packing.room import Place, by_offering, may_buy_one
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId

Chosen = tuple[tuple[JobId, tuple[int, ...]], ...]
"""Some tasks of jobs, by their indexes."""


@dataclass(frozen=True, slots=True)
class ValidLines:
    """The valid part of a plan's pools and lines.

    Attributes:
        pools: Pools whose members exist or can be bought; no member is in two.
        lines: Lines of existing pools and jobs.
        bought: Keys of the new instances that pools have and no task run was placed on.
    """

    pools: tuple[Pool, ...] = ()
    lines: tuple[Line, ...] = ()
    bought: frozenset[int] = frozenset()


def stated(
    now: Snapshot, plan: Plan, ordered: Collection[InstanceId], used: set[int]
) -> ValidLines:
    """Check pools and lines against the present.

    Args:
        now: The cluster at present.
        plan: The policy's plan.
        ordered: Instances that an operator has drained.
        used: Keys of the new instances that task runs are placed on.
    """
    if not plan.pools and not plan.lines:
        return ValidLines()
    free = _buyable(now, plan, used)
    live: set[Place] = {view.id for view in now.instances}
    live |= {view.id for view in now.draining if view.id not in ordered}
    allowed = live | used | free
    shareable = {view.id for view in now.instances if not view.pool}
    pools = _pools(plan.pools, allowed, shareable)
    members: set[Place] = {member for pool in pools for member in pool.members}
    names = {pool.name for pool in pools}
    jobs = {view.id: view.array.size for view in now.jobs if view.stands_in_line}
    lines = []
    for line in plan.lines:
        only = tuple(member for member in line.only if member in members)
        if line.only and not only:
            continue  # a line without its members would claim room everywhere
        claimed = tuple(name for name in line.pools if name in names)
        waiting = tuple(job for job in line.jobs if job in jobs)
        if claimed and (waiting or line.open_to is not None):
            task_counts = {job: jobs[job] for job in waiting} if line.chosen else {}
            chosen = _chosen(line.chosen, task_counts)
            lines.append(replace(line, pools=claimed, jobs=waiting, only=only, chosen=chosen))
    return ValidLines(pools, tuple(lines), frozenset(free & members))


def pilots_there(pilots: Chosen, jobs: Iterable[JobView]) -> Chosen:
    """The existing ones of a plan's pilots.

    Args:
        pilots: Pilots as the plan states them.
        jobs: The existing jobs.
    """
    if not pilots:
        return ()
    return _chosen(pilots, {view.id: view.array.size for view in jobs if view.stands_in_line})


def _chosen(chosen: Chosen, tasks: Mapping[JobId, int]) -> Chosen:
    """The existing ones of some chosen tasks.

    Args:
        chosen: Tasks as stated.
        tasks: Number of tasks of each job of which any may be chosen.
    """
    return tuple(
        (job, tuple(index for index in indexes if 0 <= index < tasks[job]))
        for job, indexes in chosen
        if job in tasks
    )


def _pools(
    pools: Iterable[Pool], allowed: Collection[Place], live: Collection[Place]
) -> tuple[Pool, ...]:
    """Pools of existing members, merged by name."""
    taken: set[Place] = set()
    by_name: dict[str, Pool] = {}
    for pool in sorted(pools, key=lambda it: it.shared):  # members of standing pools are not shared
        open_to = live if pool.shared else allowed
        lawful = [name for name in pool.members if name in open_to and name not in taken]
        fresh = tuple(dict.fromkeys(lawful))
        taken.update(fresh)
        earlier = by_name.get(pool.name)
        members = fresh if earlier is None else (*earlier.members, *fresh)
        closed = pool.closed if earlier is None else (*earlier.closed, *pool.closed)
        reason = pool.reason if earlier is None else earlier.reason
        present = set(members) if closed else ()
        resting = tuple(member for member in closed if member in present)
        by_name[pool.name] = Pool(pool.name, members, reason, resting, pool.shared)
    return tuple(by_name.values())


def _buyable(now: Snapshot, plan: Plan, used: set[int]) -> set[int]:
    """Keys of new instances without task runs that can be bought."""
    keys = pooled(plan)
    if not keys:
        return set()
    on_sale: Mapping[OfferingId, Offering] = {offering.id: offering for offering in now.catalog}
    offerings = {launch.key: launch.offering.id for launch in plan.launches}
    count = Counter(by_offering(now.instances))
    count.update(offerings[key] for key in used)
    buyable: set[int] = set()
    for key in keys:
        sold = on_sale.get(offerings[key]) if key in offerings else None
        if sold is None or key in used or not sold.available(now.now_ms):
            continue
        if sold.purchase is Purchase.OWNED:
            continue  # all of these exist, and none can be launched
        if may_buy_one(sold, count):
            count[sold.id] += 1
            buyable.add(key)
    return buyable


def without(plan: Plan, taken: Collection[RunId]) -> Plan:
    """A plan without places and stops of task runs that took room from a line meanwhile.

    The plan takes them to be waiting, or to be elsewhere.
    """
    if not taken:
        return plan
    entries = tuple(
        entry
        for entry in plan.entries
        if entry.run not in taken or not isinstance(entry, Assign | Suspend)
    )
    if len(entries) == len(plan.entries):
        return plan
    return without_unused(replace(plan, entries=entries))
