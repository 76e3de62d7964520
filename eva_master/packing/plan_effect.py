"""The effect of a plan: what runs where, what is free and what is launched afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from eva_master.model.catalog import Offering, Purchase, at_price_with_disk
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import (
    Assign,
    ExtraRun,
    Hold,
    NewInstance,
    Plan,
    PlanEntry,
    left,
    pooled,
)
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.resources import Resources, total
from eva_master.model.values import by_id
from eva_master.packing.precedence import among_all
from eva_master.packing.room import Place, need_on, places_after, room_left
from eva_master.packing.zones import keeps_to_one_zone, zones_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, RunId


@dataclass(frozen=True, slots=True)
class Unit:
    """Task runs that are placed together: the members of a gang, or one task of an array."""

    job: JobView
    entries: tuple[Assign, ...]

    @property
    def places(self) -> set[Place]:
        """Instances that it is placed on."""
        return {entry.on for entry in self.entries}

    @property
    def bought(self) -> set[int]:
        """Keys of the new instances that it is placed on."""
        return {entry.on for entry in self.entries if isinstance(entry.on, int)}


@dataclass(frozen=True)
class PlanEffect:
    """A plan, and the cluster once it is carried out.

    Attributes:
        now: The cluster before the plan.
        plan: The plan.
    """

    now: Snapshot
    plan: Plan

    @cached_property
    def runs(self) -> Mapping[RunId, RunView]:
        """All task runs, where they are before the plan."""
        return by_id(self.now.runs)

    @cached_property
    def jobs(self) -> Mapping[JobId, JobView]:
        """All jobs with an unfinished task."""
        return by_id(self.now.jobs)

    @cached_property
    def assigned(self) -> Mapping[RunId, Place]:
        """Places that the plan gives to task runs."""
        return {entry.run: entry.on for entry in self.plan.entries if isinstance(entry, Assign)}

    @cached_property
    def held(self) -> Mapping[RunId, str]:
        """Task runs that the plan leaves waiting, with the reasons."""
        return {entry.run: entry.reason for entry in self.plan.entries if isinstance(entry, Hold)}

    @cached_property
    def places(self) -> Mapping[RunId, Place | None]:
        """Place each task run is afterwards; `None` without a place."""
        return places_after(self.now, self.plan)

    @cached_property
    def occupants(self) -> Mapping[Place, list[RunView]]:
        """The task runs on each instance afterwards, without extra runs that begin."""
        occupants: defaultdict[Place, list[RunView]] = defaultdict(list)
        for run in self.now.runs:
            if (place := self.places[run.id]) is not None:
                occupants[place].append(run)
        return occupants

    @cached_property
    def waiting(self) -> list[RunView]:
        """Task runs without a place afterwards, which a later plan may place."""
        runs = self.now.runs
        return [run for run in runs if self.places[run.id] is None and not run.pinned]

    @cached_property
    def launched(self) -> Mapping[int, Offering]:
        """Offerings of the new instances, by their keys.

        Policies compare prices without the disk that tasks state; here it is part of the price.
        """
        return {
            launch.key: at_price_with_disk(launch.offering, self._disk(launch))
            if launch.offering.type.sized_disk
            else launch.offering
            for launch in self.plan.launches
        }

    def _disk(self, launch: NewInstance) -> int:
        """MiB of disk for the task runs on a new instance."""
        needs = (need_on(run.task, launch.offering) for run in self.occupants.get(launch.key, ()))
        return total(needs).disk_mib

    @cached_property
    def offerings(self) -> Mapping[Place, Offering]:
        """Offerings of the live instances and of the new ones."""
        offerings: dict[Place, Offering] = {view.id: view.offering for view in self.now.instances}
        offerings.update(self.launched.items())
        return offerings

    @cached_property
    def members(self) -> frozenset[Place]:
        """Instances that stand in pools afterwards."""
        return frozenset().union(*[pool.members for pool in self.plan.pools])

    @cached_property
    def used(self) -> frozenset[Place]:
        """Instances to which the plan has runs come, or that it puts into pools."""
        entries = self.plan.entries
        used = {entry.on for entry in entries if isinstance(entry, Assign | ExtraRun)}
        return self.members.union(used)

    def is_torn(self, job: JobView) -> bool:
        """Whether a job has task runs in several zones afterwards that belong into one."""
        if not keeps_to_one_zone(job.spec):
            return False
        return len(zones_of(self.sited(self.places[run] for run in job.runs))) > 1

    def sited(self, places: Iterable[Place | None]) -> Iterator[Offering]:
        """The offerings of some places, those of draining instances included."""
        for place in places:
            offering = None if place is None else self._everywhere.get(place)
            if offering is not None:
                yield offering

    @cached_property
    def _everywhere(self) -> Mapping[Place, Offering]:
        offerings: dict[Place, Offering] = {view.id: view.offering for view in self.now.draining}
        offerings.update(self.offerings)
        return offerings

    def free(self, place: Place) -> Resources:
        """Room on an instance afterwards, beside all its task runs."""
        offerings, runs = {place: self.offerings[place]}, self.occupants.get(place, ())
        return room_left(offerings, runs, self.places)[place]

    def fits(self, key: int, view: InstanceView) -> bool:
        """Whether an empty instance holds the task runs on a new one of the same type."""
        needs = (need_on(run.task, view.offering) for run in self.occupants.get(key, ()))
        return total(needs).fits(view.offering.type.capacity)

    @cached_property
    def units(self) -> list[Unit]:
        """Task runs that the plan places, by units that stand or fall together.

        The most urgent unit comes first; equally urgent ones stay in the order of the plan.
        """
        together: dict[JobId | RunId, list[Assign]] = {}
        for entry in self.plan.entries:
            if isinstance(entry, Assign) and entry.run in self.runs:
                job = self.jobs[self.runs[entry.run].job]
                key = job.id if job.spec.kind is JobKind.GANG else entry.run
                together.setdefault(key, []).append(entry)
        groups = [
            Unit(self.jobs[self.runs[assigned[0].run].job], tuple(assigned))
            for assigned in together.values()
        ]
        return sorted(groups, key=lambda unit: among_all(unit.job))

    @cached_property
    def keeping(self) -> frozenset[InstanceId]:
        """Live instances that stay though they are empty: owned ones, and members of pools."""
        members = {member for pool in self.plan.pools if not pool.shared for member in pool.members}
        return frozenset(
            view.id
            for view in self.now.instances
            if view.id in members or view.offering.purchase is Purchase.OWNED
        )

    def with_plan(self, plan: Plan) -> PlanEffect:
        """The effect of another plan on the same cluster; itself if the plan is its own."""
        if plan is self.plan:
            return self
        effect = PlanEffect(self.now, plan)
        # The indexes of the cluster stay as they are.
        effect.__dict__.update(runs=self.runs, jobs=self.jobs)
        return effect

    def drop(self, held: Mapping[RunId, str], members: Collection[int] = ()) -> PlanEffect:
        """The effect without some places, and without what is launched for these alone.

        Args:
            held: Task runs that are not placed after all, with the reasons: those that have a place
                stay there, the others wait.
            members: New members that pools do not get.
        """
        if not held and not members:
            return self
        plan = left(self.plan, members)
        if held:
            plan = replace(plan, entries=tuple(self._held_back(plan.entries, held)))
        return self.with_plan(without_unused(plan))

    def _held_back(
        self, entries: Collection[PlanEntry], held: Mapping[RunId, str]
    ) -> Iterator[PlanEntry]:
        """Entries in which some task runs wait that have no place."""
        waits = {run: why for run, why in held.items() if self.runs[run].instance is None}
        for entry in entries:
            if entry.run not in held:
                yield entry
            elif why := waits.pop(entry.run, ""):
                yield Hold(entry.run, why)
        yield from (Hold(run, why) for run, why in waits.items())

    def explain(self, reasons: Mapping[RunId, str]) -> PlanEffect:
        """The effect with other reasons of task runs that it holds."""
        if not reasons:
            return self
        entries = tuple(
            Hold(entry.run, reasons[entry.run])
            if isinstance(entry, Hold) and entry.run in reasons
            else entry
            for entry in self.plan.entries
        )
        return self.with_plan(replace(self.plan, entries=entries))


def without_unused(plan: Plan) -> Plan:
    """A plan without new instances that no task run and no pool uses, nor extra runs on them."""
    used = {entry.on for entry in plan.entries if isinstance(entry, Assign)} | {*pooled(plan)}
    launches = tuple(launch for launch in plan.launches if launch.key in used)
    if len(launches) == len(plan.launches):
        return plan
    entries = tuple(
        entry
        for entry in plan.entries
        if not isinstance(entry, ExtraRun) or isinstance(entry.on, str) or entry.on in used
    )
    return replace(plan, launches=launches, entries=entries)
