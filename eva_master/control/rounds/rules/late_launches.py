"""The stage that launches nothing for tasks that run and have no use for it by the time it is up.

A task that runs, and ends as stated or measured before a new instance is up and the task has moved
there, stays where it is. So does one that is to move to a new instance while one of the same
offering is about to empty: it moves there then. Waiting tasks are never held
back for that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from eva_master.control.features.emptied.memory import Comers
from eva_master.model.catalog import sold_as
from eva_master.model.planning.plan import NewInstance, pooled
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.valuation.time_left import in_time_ms
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, RunId


def without_late_launches(effect: PlanEffect) -> PlanEffect:
    """A plan without the new instances all of whose tasks would have ended before.

    Tasks of elastic gangs whose size changes are left to the policy, like those on instances that
    go while they run. On a drained instance a task may run to its end.

    Args:
        effect: The policy's plan.
    """
    comers: defaultdict[int, list[Unit]] = defaultdict(list)
    for unit in effect.units if effect.plan.launches else ():
        for key in unit.bought & effect.launched.keys():
            comers[key].append(unit)
    late = _Late(effect)
    stay: dict[RunId, str] = {}
    for key in sorted(comers.keys() - {*pooled(effect.plan)}):
        boot_ms = effect.launched[key].type.boot_ms
        if all(late.ends_before(unit, boot_ms) for unit in comers[key]):
            stay.update((entry.run, "") for unit in comers[key] for entry in unit.entries)
    return without_late_launches(effect.drop(stay)) if stay else effect


def without_awaited(effect: PlanEffect) -> tuple[PlanEffect, Mapping[InstanceId, Comers]]:
    """A plan without new instances for running tasks where an equal instance is about to empty.

    The plan is unchanged while a task waits, which may take the emptied instance.

    Args:
        effect: The policy's plan.

    Returns:
        The plan, and for each awaited instance the task runs that are to move there.
    """
    plan, present = effect.plan, effect.now
    if not plan.launches or any(run.instance is None for run in present.runs):
        return effect, {}
    late, awaited = _Late(effect), dict[InstanceId, Comers]()
    stay: dict[RunId, str] = {}
    for launch in plan.launches:
        comers = [unit for unit in effect.units if launch.key in unit.bought]
        if launch.key in pooled(plan) or not comers or not all(map(late.may_stay, comers)):
            continue
        empties = (view for view in present.instances if view.id not in awaited)
        view = next((view for view in empties if late.empties_before(view, launch)), None)
        if view is not None:
            runs = tuple(entry.run for unit in comers for entry in unit.entries)
            awaited[view.id] = late.comers(runs)
            stay.update(dict.fromkeys(runs, ""))
    return effect.drop(stay), awaited


class _Late:
    """Units and instances at the time when a new instance is up."""

    def __init__(self, effect: PlanEffect) -> None:
        self._effect, self._jobs, places = effect, effect.jobs, effect.assigned
        # A plan places a task on a drained instance like one that waits, while it runs there.
        drained = {name: view.id for view in effect.now.draining for name in view.residents}
        self._views = dict(effect.runs)
        for name, place in drained.items():
            run = self._views.get(name)
            if run is not None and run.instance is None and _progresses(run):
                self._views[name] = replace(run, instance=place, running=True)
        self._live = {view.id for view in effect.now.instances}
        self._drained = set(drained.values())
        # Members that an elastic gang is to have more are no task runs yet.
        views = self._views
        self._moved = {
            run for run, on in places.items() if run not in views or views[run].instance != on
        }
        self._filled = {places[run] for run in self._moved}
        self._resized = {entry.job for entry in effect.plan.sizes}
        self._now = effect.now.now_ms

    def ends_before(self, unit: Unit, boot_ms: int) -> bool:
        """Whether a unit runs, and ends before an instance is up and it has moved there."""
        if unit.job.id in self._resized:
            return False
        for run in (self._views[entry.run] for entry in unit.entries):
            within = in_time_ms(run, unit.job, self._now)
            stays = run.instance in self._live or run.instance in self._drained
            if not stays or within is None or within >= boot_ms:
                return False
        return True

    def may_stay(self, unit: Unit) -> bool:
        """Whether a unit runs, goes to one place, and nothing else is to have its room."""
        if unit.job.id in self._resized or len({entry.on for entry in unit.entries}) > 1:
            return False
        if self._effect.is_torn(unit.job):
            return False
        for run in (self._views[entry.run] for entry in unit.entries):
            if not run.running or run.instance not in self._live or run.instance in self._filled:
                return False
        return True

    def comers(self, runs: Sequence[RunId]) -> Comers:
        """Task runs with their present instances, and all task runs on these."""
        places = tuple((name, self._views[name].instance) for name in runs)
        instances = {place for _, place in places}
        beside = (name for name, run in self._views.items() if run.instance in instances)
        return Comers(places, frozenset(beside))

    def empties_before(self, view: InstanceView, launch: NewInstance) -> bool:
        """Whether an instance equals a new one, and is empty before the new one is up."""
        if sold_as(view.offering) != launch.offering.id or view.pool or view.id in self._filled:
            return False
        if view.offering.by_disk and not self._effect.fits(launch.key, view):
            return False
        boot_ms = launch.offering.type.boot_ms
        return bool(view.residents) and all(self._ends(name, boot_ms) for name in view.residents)

    def _ends(self, name: RunId, boot_ms: int) -> bool:
        """Whether a task run ends before an instance is up, and no other task comes after it."""
        run = self._views.get(name)
        if run is None or run.remaining is None or name in self._moved:
            return False
        job = self._jobs[run.job]
        over = job.progress.succeeded + job.progress.failed + len(job.runs)
        if job.spec.kind is JobKind.ARRAY and over < job.array.size:
            return False
        ends_in = run.remaining.ends_in_ms(self._now)
        return ends_in is not None and 0 < ends_in < boot_ms


def _progresses(run: RunView) -> bool:
    return run.remaining is not None and run.remaining.since_ms is not None
