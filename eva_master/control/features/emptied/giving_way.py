"""Empty instances make way for what limits else keep from being launched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from eva_master.model.catalog import Offering, as_planned, base_family
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_wire.values.ids import InstanceId, Millis, RunId


@dataclass(frozen=True, slots=True)
class GivenWay:
    """Empty instances that hold what a plan needs for a new one.

    Attributes:
        instances: Which go; the plan uses none of them.
        priority: The priority of the job that comes first.
    """

    instances: frozenset[InstanceId] = frozenset()
    priority: int = 0


NONE = GivenWay()


def give_way(
    before: PlanEffect,
    after: PlanEffect,
    vacant: Callable[[InstanceId], bool],
    allows: Callable[[Unit, Collection[InstanceView]], bool],
) -> tuple[PlanEffect, GivenWay]:
    """A plan without less urgent tasks on empty instances whose end allows what limits cut.

    Args:
        before: The plan before limits cut it.
        after: The plan after limits cut it.
        vacant: Returns whether a live instance is empty and is not kept for any task.
        allows: Returns whether limits allow a unit after the end of some instances.

    Returns:
        The plan, and the instances that are terminated: the fewest for the most urgent cut unit. If
        this unit is one task that fits one of them, of the same family, and costs no more there
        until its end than on a new one, the task gets it and none is terminated.
    """
    if before is after:
        return after, NONE
    for unit in before.units:
        if any(entry.run not in after.assigned for entry in unit.entries):
            break
    else:
        return after, NONE
    going: list[InstanceView] = []
    for view in _candidates(unit, after, vacant):
        going.append(view)
        if allows(unit, going):
            break
    else:
        return after, NONE
    first = unit.entries[0]
    run = before.runs[first.run]
    new = before.launched.get(first.on) if isinstance(first.on, int) else None
    for view in going:
        placed = _on(unit, view, run)
        if placed is None or new is None:
            continue
        if not _serves(view.offering, as_planned(new), run, after.now.now_ms):
            continue
        if allows(placed, ()):
            seated = _without_others(placed, frozenset({view.id}), after).plan
            entries = tuple(old for old in seated.entries if old.run != first.run)
            return after.with_plan(replace(seated, entries=(*entries, *placed.entries))), NONE
    names = frozenset(view.id for view in going)
    return _without_others(unit, names, after), GivenWay(names, unit.job.priority)


def _serves(live: Offering, new: Offering, run: RunView, now_ms: Millis) -> bool:
    """Whether a task costs no more on an instance that is there than on a new one of its family.

    The markets of a family count as one. A task of unknown length gets what is there: it may end
    before a new one is up.
    """
    if base_family(live.type.family) != base_family(new.type.family):
        return False
    if live.price <= new.price:
        return True
    if run.remaining is None:
        return True
    left_ms = run.remaining.standalone_ms(now_ms)
    return live.price * left_ms <= new.price * (left_ms + new.type.boot_ms)


def _on(unit: Unit, view: InstanceView, run: RunView) -> Unit | None:
    """A waiting unit of one task, placed on an instance; `None` if it does not fit there."""
    if len(unit.entries) > 1:
        return None
    (entry,) = unit.entries
    need = run.task.demand_on(view.offering.type.family)
    if run.instance is not None or need is None or not need.fits(view.offering.type.capacity):
        return None
    return replace(unit, entries=(replace(entry, on=view.id),))


def _without_others(unit: Unit, names: frozenset[InstanceId], after: PlanEffect) -> PlanEffect:
    """A plan without less urgent tasks on some instances, which are terminated for a unit."""
    why = f"makes way for {unit.job.id}, which is more urgent"
    held: dict[RunId, str] = {}
    for other in after.units:
        if place := next((entry.on for entry in other.entries if entry.on in names), None):
            held.update((entry.run, f"{place} {why}") for entry in other.entries)
    return after.drop(held)


def _candidates(
    unit: Unit, after: PlanEffect, vacant: Callable[[InstanceId], bool]
) -> Iterator[InstanceView]:
    """Empty instances that may be terminated for a unit, the least urgent use first."""
    urgency: dict[object, int] = {}
    for other in after.units:
        for entry in other.entries:
            urgency[entry.on] = max(urgency.get(entry.on, 0), other.job.priority)
    candidates = [
        view
        for view in after.now.instances
        if not (view.residents or view.pool or view.id in unit.places | after.members)
        and urgency.get(view.id, unit.job.priority - 1) < unit.job.priority
        and vacant(view.id)
    ]
    yield from sorted(candidates, key=lambda view: (urgency.get(view.id, -1), view.id))
