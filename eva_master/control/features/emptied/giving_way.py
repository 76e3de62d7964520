"""Empty instances make way for what limits else keep from being launched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from eva_master.control.limits import Unit, held_back, units
from eva_master.model.catalog import Offering
from eva_master.model.ids import InstanceId, RunId
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.snapshot import InstanceView, Snapshot


@dataclass(frozen=True, slots=True)
class Yielding:
    """Empty instances that hold what a plan needs for a new one.

    Attributes:
        instances: Which go; the plan uses none of them.
        priority: The priority of the job that comes first.
    """

    instances: frozenset[InstanceId] = frozenset()
    priority: int = 0


NONE = Yielding()


def give_way(
    before: Plan,
    after: Plan,
    present: Snapshot,
    vacant: Callable[[InstanceId], bool],
    allows: Callable[[Unit, Collection[InstanceView]], bool],
) -> tuple[Plan, Yielding]:
    """A plan without less urgent tasks on empty instances whose end allows what limits cut.

    Args:
        before: The plan before limits cut it.
        after: The plan after limits cut it.
        present: The partition as it is.
        vacant: Returns whether a live instance is empty and is not kept for any task.
        allows: Returns whether limits allow a unit after the end of some instances.

    Returns:
        The plan, and the instances that are terminated: the fewest for the most urgent cut unit. If
        this unit is one task that fits one of them, of the same family, and costs no more there
        until its end than on a new one, the task gets it and none is terminated.
    """
    if before is after:
        return after, NONE
    kept = {entry.run for entry in after.entries if isinstance(entry, Assign)}
    for unit in units(before, present):
        if any(entry.run not in kept for entry in unit.entries):
            break
    else:
        return after, NONE
    going: list[InstanceView] = []
    for view in _candidates(unit, after, present, vacant):
        going.append(view)
        if allows(unit, going):
            break
    else:
        return after, NONE
    new = next((new.offering for new in before.launches if new.key == unit.entries[0].on), None)
    for view in going:
        placed = _on(unit, view, present)
        if placed is None or new is None or not _serves(view.offering, new, placed, present):
            continue
        if allows(placed, ()):
            seated, _ = _without_others(placed, frozenset({view.id}), after, present)
            entries = tuple(old for old in seated.entries if old.run != placed.entries[0].run)
            return replace(seated, entries=(*entries, *placed.entries)), NONE
    return _without_others(unit, frozenset(view.id for view in going), after, present)


def _serves(live: Offering, new: Offering, unit: Unit, present: Snapshot) -> bool:
    """Whether a task costs no more on an instance that is there than on a new one of its family.

    One of unknown length gets what is there: it may end before a new one is up.
    """
    if live.type.family != new.type.family:
        return False
    if live.price <= new.price:
        return True
    run = next(run for run in present.runs if run.id == unit.entries[0].run)
    if run.remaining is None:
        return True
    left_ms = run.remaining.standalone_ms(present.now_ms)
    return live.price * left_ms <= new.price * (left_ms + new.type.boot_ms)


def _on(unit: Unit, view: InstanceView, present: Snapshot) -> Unit | None:
    """A waiting unit of one task, placed on an instance; `None` if it does not fit there."""
    if len(unit.entries) > 1:
        return None
    (entry,) = unit.entries
    run = next(view_of_run for view_of_run in present.runs if view_of_run.id == entry.run)
    need = run.task.demand_on(view.offering.type.family)
    if run.instance is not None or need is None or not need.fits(view.offering.type.capacity):
        return None
    return replace(unit, entries=(replace(entry, on=view.id),))


def _without_others(
    unit: Unit, names: frozenset[InstanceId], after: Plan, present: Snapshot
) -> tuple[Plan, Yielding]:
    """A plan without less urgent tasks on some instances, which are terminated for a unit."""
    priority = unit.job.priority
    why = f"makes way for {unit.job.id}, which is more urgent"
    held: dict[RunId, str] = {}
    for other in units(after, present):
        if place := next((entry.on for entry in other.entries if entry.on in names), None):
            held.update((entry.run, f"{place} {why}") for entry in other.entries)
    runs = {view.id: view for view in present.runs}
    entries = tuple(held_back(after.entries, held, runs)) if held else after.entries
    launched = {entry.on for entry in entries if isinstance(entry, Assign)}
    launched.update(member for pool in after.pools for member in pool.members)
    launches = tuple(launch for launch in after.launches if launch.key in launched)
    return replace(after, entries=entries, launches=launches), Yielding(names, priority)


def _candidates(
    unit: Unit, after: Plan, present: Snapshot, vacant: Callable[[InstanceId], bool]
) -> Iterator[InstanceView]:
    """Empty instances that may be terminated for a unit, the least urgent use first."""
    urgency: dict[object, int] = {}
    for other in units(after, present):
        for entry in other.entries:
            urgency[entry.on] = max(urgency.get(entry.on, 0), other.job.priority)
    mine = {entry.on for entry in unit.entries}
    pooled = {member for pool in after.pools for member in pool.members}
    candidates = [
        view
        for view in present.instances
        if not (view.residents or view.pool or view.id in mine or view.id in pooled)
        and urgency.get(view.id, unit.job.priority - 1) < unit.job.priority
        and vacant(view.id)
    ]
    yield from sorted(candidates, key=lambda view: (urgency.get(view.id, -1), view.id))
