"""Use of empty instances that a plan leaves, in place of its launches.

An instance may have emptied after the snapshot of the plan, which then launches another one of the
same offering.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from eva_master.model.catalog import sold_as
from eva_master.model.planning.plan import Assign, ExtraRun, Plan, PlanEntry, pooled
from eva_master.model.planning.snapshot import InstanceView
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
        rest = spare.get(sold_as(effect.launched[key]), [])
        if key not in reused and (view := _first_that_holds(effect, key, rest)) is not None:
            reused[key] = view.id
            rest.remove(view)
    return effect.with_plan(_with_places(effect.plan, reused)), reused


def _spare(
    effect: PlanEffect, vacant: Callable[[InstanceId], bool]
) -> dict[OfferingId, list[InstanceView]]:
    """Empty instances that a plan does not use, by offering, ready ones first."""
    wanted = {sold_as(offering) for offering in effect.launched.values()}
    spare: defaultdict[OfferingId, list[InstanceView]] = defaultdict(list)
    for view in effect.now.instances:
        if view.residents or view.pool:
            continue
        offering = sold_as(view.offering)
        if offering not in wanted:
            continue
        if view.id not in effect.used and vacant(view.id):
            spare[offering].append(view)
    for views in spare.values():
        views.sort(key=lambda view: (not view.ready, view.id))
    return spare


def _first_that_holds(
    effect: PlanEffect, key: int, views: Iterable[InstanceView]
) -> InstanceView | None:
    """The first of some empty instances whose disk holds what is to come to a new one."""
    for view in views:
        if not view.offering.by_disk or (key not in effect.members and effect.fits(key, view)):
            return view
    return None


def _by_urgency(effect: PlanEffect) -> Iterator[int]:
    """Keys of the launches of a plan, some more than once; those of pools come last."""
    for unit in effect.units:
        yield from (entry.on for entry in unit.entries if isinstance(entry.on, int))
    yield from pooled(effect.plan)


def _with_places(plan: Plan, reused: Reused) -> Plan:
    if not reused:
        return plan

    def entry_of(entry: PlanEntry) -> PlanEntry:
        if isinstance(entry, Assign | ExtraRun) and isinstance(entry.on, int):
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
