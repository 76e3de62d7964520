"""Use of empty instances that a plan leaves, in place of its launches.

An instance may have emptied after the snapshot of the plan, which then launches another one of the
same offering.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from eva_master.model.planning.plan import Assign, Duplicate, Plan, PlanEntry, pooled
from eva_master.model.planning.standing import Pool
from eva_master.packing.plan_effect import PlanEffect
from eva_wire.values.ids import InstanceId, OfferingId

Reused = Mapping[int, InstanceId]
"""Live instances by the keys of the launches that they take the place of."""


def used(effect: PlanEffect, vacant: Callable[[InstanceId], bool]) -> tuple[PlanEffect, Reused]:
    """The plan with its unused empty instances in place of launches of the same offering.

    The most urgent task runs on new instances get them.

    Args:
        effect: The policy's plan.
        vacant: Returns whether a live instance is empty and is not kept for any task.

    Returns:
        The plan, and the instance used for each replaced launch.
    """
    if not effect.plan.launches:
        return effect, {}
    spare = _spare(effect, vacant)
    if not spare:
        return effect, {}
    reused: dict[int, InstanceId] = {}
    for key in _by_urgency(effect):
        if key not in reused and (rest := spare.get(effect.launched[key].id)):
            reused[key] = rest.pop(0)
    return effect.with_plan(_with_places(effect.plan, reused)), reused


def _spare(
    effect: PlanEffect, vacant: Callable[[InstanceId], bool]
) -> dict[OfferingId, list[InstanceId]]:
    """Empty instances that a plan does not use, by offering, ready ones first."""
    wanted = {offering.id for offering in effect.launched.values()}
    spare: defaultdict[OfferingId, list[tuple[bool, InstanceId]]] = defaultdict(list)
    for view in effect.now.instances:
        if view.offering.id not in wanted or view.residents or view.pool:
            continue
        if view.id not in effect.used and vacant(view.id):
            spare[view.offering.id].append((not view.ready, view.id))
    return {offering: [name for _, name in sorted(views)] for offering, views in spare.items()}


def _by_urgency(effect: PlanEffect) -> Iterator[int]:
    """Keys of the launches of a plan, some more than once; those of pools come last."""
    for unit in effect.units:
        yield from (entry.on for entry in unit.entries if isinstance(entry.on, int))
    yield from pooled(effect.plan)


def _with_places(plan: Plan, reused: Reused) -> Plan:
    if not reused:
        return plan

    def entry_of(entry: PlanEntry) -> PlanEntry:
        if isinstance(entry, Assign | Duplicate) and isinstance(entry.on, int):
            return replace(entry, on=reused.get(entry.on, entry.on))
        return entry

    def all_of(places: Iterable[InstanceId | int]) -> tuple[InstanceId | int, ...]:
        return tuple(
            reused.get(place, place) if isinstance(place, int) else place for place in places
        )

    def pool_of(pool: Pool) -> Pool:
        return replace(pool, members=all_of(pool.members), closed=all_of(pool.closed))

    return replace(
        plan,
        launches=tuple(launch for launch in plan.launches if launch.key not in reused),
        entries=tuple(map(entry_of, plan.entries)),
        pools=tuple(map(pool_of, plan.pools)),
        lines=tuple(replace(line, only=all_of(line.only)) for line in plan.lines),
    )
