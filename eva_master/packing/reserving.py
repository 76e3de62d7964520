"""Room that is kept for the most urgent of those who wait, where what can be bought is limited.

Else a large job would never start: whatever becomes free is soon enough for a small one, and never
for it. So before a policy plans, whoever is less urgent is kept from what the urgent could use: by
hiding from the policy what is not to be touched. Nobody is stopped for anybody else.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import Offering
from eva_master.model.ids import MILLION, InstanceId, JobId, Millis, OfferingId, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Hold, Plan
from eva_master.model.planning.snapshot import InstanceView, JobView, RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.valuation.reservation_price import hosts

_NEVER_MS = 10**15

Occasion = tuple[object, ...]
"""Who might be placed, and all that decides whether there is room."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a policy gets to see of a snapshot, and what is said of the rest.

    Attributes:
        snapshot: To be planned with.
        holds: Task runs that wait for what is kept for them, with the reason.
        urgent: Task runs that come first in this plan; who is less urgent comes in the next.
        occasion: When they do. If they found no place it is not tried again.
        rivals: Task runs that may not use what is kept, with the job for which it is.
    """

    snapshot: Snapshot
    holds: Mapping[RunId, str] = field(default_factory=dict)
    urgent: frozenset[RunId] = frozenset()
    occasion: Occasion = ()
    rivals: Mapping[RunId, JobId] = field(default_factory=dict)

    def completed(self, plan: Plan) -> Plan:
        """A plan for the whole snapshot: with why those wait whom the policy did not see."""
        if not self.holds and not self.rivals:
            return plan
        entries = [
            replace(entry, reason=self._told(entry))
            if isinstance(entry, Hold) and entry.run in self.rivals
            else entry
            for entry in plan.entries
            if entry.run not in self.holds
        ]
        entries.extend(Hold(run, why) for run, why in self.holds.items())
        return replace(plan, entries=tuple(entries))

    def _told(self, hold: Hold) -> str:
        return f"room is kept for {self.rivals[hold.run]}, which has a higher priority"


def reserve(
    snapshot: Snapshot, refused: Collection[Occasion] = (), ignored: Collection[JobId] = ()
) -> Reserved:
    """Keep room for the most urgent of those who wait.

    Those are kept room for whose priority is higher than another job's, and who can only run on
    offerings that are limited or not to be had. If some of them fit, they are planned for alone
    with those whom they do not concern. Those that do not fit have kept for them what will be free
    first: as it is known when tasks end, that many instances; else all that they could use.

    Args:
        snapshot: The cluster.
        refused: Occasions on which a policy has found no place for who seemed to fit.
        ignored: Jobs for which nothing is kept, since they could not use it now.
    """
    priorities = {job.priority for job in snapshot.jobs}
    if len(priorities) <= 1 or all(_endless(it, snapshot.now_ms) for it in snapshot.catalog):
        return Reserved(snapshot)
    holds: dict[RunId, str] = {}
    rivals: dict[RunId, JobId] = {}
    seen = snapshot
    while True:
        cluster = _Cluster(seen)
        level = cluster.most_urgent(min(priorities), ignored)
        if not level:
            return Reserved(seen, holds, rivals=rivals)
        below = cluster.rivals(level)
        fitting = cluster.fitting(level)
        occasion = cluster.occasion(fitting)
        if fitting and occasion not in refused:
            later = {run.id for unit in below for run in unit.runs}
            urgent = frozenset(run.id for unit in fitting for run in unit.runs)
            return Reserved(_without(seen, later), holds, urgent, occasion, rivals)
        kept, slots = cluster.kept(level)
        told = cluster.told(level, kept)
        holds.update(told)
        first = level[0].job.id
        rivals.update((run.id, first) for unit in below for run in unit.runs)
        seen = _without(seen, told, kept, slots)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Waiting task runs that are placed together."""

    job: JobView
    runs: tuple[RunView, ...]


@dataclass(slots=True)
class _Room:
    """What is free on an instance, live or not bought yet."""

    offering: Offering
    free: Resources


class _Cluster:
    """A snapshot, indexed for the questions about room."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._live = {view.id: view for view in snapshot.instances}
        self._runs = {run.id: run for run in snapshot.runs}
        used = Counter(view.offering.id for view in snapshot.instances)
        now = snapshot.now_ms
        self._slots = {
            offering.id: max(0, offering.limit - used[offering.id])
            for offering in snapshot.catalog
            if offering.limit is not None and offering.available(now)
        }
        self._offerings = {view.offering.id: view.offering for view in snapshot.instances}
        self._offerings |= {offering.id: offering for offering in snapshot.catalog}
        self._most = {
            name: max(used[name], it.limit if it.limit is not None else used[name])
            for name, it in self._offerings.items()
        }
        self._unlimited = [it for it in snapshot.catalog if _endless(it, now)]
        self._residents: defaultdict[InstanceId, list[RunView]] = defaultdict(list)
        for run in snapshot.runs:
            if run.instance in self._live:
                assert run.instance is not None
                self._residents[run.instance].append(run)

    def most_urgent(self, lowest: int, ignored: Collection[JobId]) -> list[_Unit]:
        """Those of the highest priority who wait for room, in order; of none as low as the lowest.

        Who would not fit into the empty cluster waits for something else.
        """
        by_priority: defaultdict[int, list[JobView]] = defaultdict(list)
        for job in self._snapshot.jobs:
            if job.priority > lowest and job.id not in ignored:
                by_priority[job.priority].append(job)
        for priority in sorted(by_priority, reverse=True):
            jobs = sorted(by_priority[priority], key=lambda job: (job.submitted_ms, job.id))
            units = [
                unit
                for job in jobs
                for unit in self._waiting(job)
                if not self._buyable(unit) and self._possible(unit)
            ]
            if units:
                return units
        return []

    def rivals(self, level: Sequence[_Unit]) -> list[_Unit]:
        """Those less urgent who wait, and could use what these could."""
        demands = [run.task.demand for unit in level for run in unit.runs]
        wanted = [
            it for it in self._offerings.values() if any(hosts(it, demand) for demand in demands)
        ]
        return [
            unit
            for job in self._snapshot.jobs
            if job.priority < level[0].job.priority
            for unit in self._waiting(job)
            if any(hosts(it, run.task.demand) for run in unit.runs for it in wanted)
        ]

    def _possible(self, unit: _Unit) -> bool:
        """Whether there would be room if nobody else were there."""
        rooms: list[_Room] = []
        slots = dict(self._most)
        return all(self._put(run, rooms, slots) for run in unit.runs)

    def fitting(self, level: Sequence[_Unit]) -> list[_Unit]:
        """Those for whom there is room now, in order."""
        rooms = [
            _Room(view.offering, self._free(view))
            for view in sorted(self._live.values(), key=lambda view: view.id)
        ]
        slots = dict(self._slots)
        found = []
        for unit in level:
            trial = [replace(room) for room in rooms]
            left = dict(slots)
            if all(self._put(run, trial, left) for run in unit.runs):
                rooms, slots = trial, left
                found.append(unit)
        return found

    def occasion(self, fitting: Sequence[_Unit]) -> Occasion:
        """What decides whether a policy finds a place for these."""
        runs = tuple(run.id for unit in fitting for run in unit.runs)
        residents = tuple((view.id, view.residents) for view in self._snapshot.instances)
        return runs, residents, tuple(sorted(self._slots.items()))

    def kept(self, level: Sequence[_Unit]) -> tuple[set[InstanceId], Counter[OfferingId]]:
        """The instances, and how many of an offering that may still be bought, kept for these."""
        runs = [run for unit in level for run in unit.runs]
        slots = Counter(
            {
                name: number
                for name, number in self._slots.items()
                if number and any(hosts(self._offerings[name], run.task.demand) for run in runs)
            }
        )
        free: dict[InstanceId, tuple[int, int]] = {}
        for view in self._live.values():
            bounds = [self._drained(view, run) for run in runs]
            possible = [bound for bound in bounds if bound is not None]
            if possible:
                free[view.id] = min(low for low, _ in possible), max(high for _, high in possible)
        needed = len(runs) - sum(slots.values())
        latest = sorted(high for _, high in free.values())
        certain = latest[needed - 1] if 0 < needed <= len(latest) else _NEVER_MS
        return {name for name, (low, _) in free.items() if low <= certain}, slots

    def told(self, level: Sequence[_Unit], kept: Iterable[InstanceId]) -> dict[RunId, str]:
        """Why these wait."""
        names = sorted(kept)
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        about = f"; kept for it once there is room: {shown}" if names else ""
        snapshot, now = self._snapshot, self._snapshot.now_ms
        reasons = {}
        for run in (run for unit in level for run in unit.runs):
            why = why_unplaced(run.task.demand, snapshot.catalog, now) or "no room at present"
            reasons[run.id] = why + about
        return reasons

    def _waiting(self, job: JobView) -> list[_Unit]:
        runs = [
            run
            for name in job.runs
            if (run := self._runs[name]).instance not in self._live and not run.pinned
        ]
        if not runs:
            return []
        gang = job.kind is JobKind.GANG
        return [_Unit(job, tuple(runs))] if gang else [_Unit(job, (run,)) for run in runs]

    def _buyable(self, unit: _Unit) -> bool:
        """Whether all of it can be bought for, whatever others do."""
        return all(any(hosts(it, run.task.demand) for it in self._unlimited) for run in unit.runs)

    def _free(self, view: InstanceView) -> Resources:
        used = NOTHING
        for run in self._residents[view.id]:
            used = used + (run.task.demand_on(view.offering.type.family) or NOTHING)
        return view.offering.type.capacity - used

    def _put(self, run: RunView, rooms: list[_Room], slots: dict[OfferingId, int]) -> bool:
        """Take room for a task run, of a new instance if need be."""
        for room in rooms:
            need = run.task.demand_on(room.offering.type.family)
            if need is not None and need.fits(room.free):
                room.free = room.free - need
                return True
        for name, number in slots.items():
            offering = self._offerings[name]
            if number and hosts(offering, run.task.demand):
                slots[name] -= 1
                need = run.task.demand_on(offering.type.family)
                assert need is not None
                rooms.append(_Room(offering, offering.type.capacity - need))
                return True
        return any(hosts(it, run.task.demand) for it in self._unlimited)

    def _drained(self, view: InstanceView, wanted: RunView) -> tuple[int, int] | None:
        """How long it takes until there is room for a task run if nobody comes, at least and most.

        In milliseconds; `None` if there never is.
        """
        family = view.offering.type.family
        need = wanted.task.demand_on(family)
        if need is None or not need.fits(view.offering.type.capacity):
            return None
        known: list[tuple[int, Resources]] = []
        unknown: list[tuple[int, Resources]] = []
        for run in self._residents[view.id]:
            took = run.task.demand_on(family) or NOTHING
            left = self._left_ms(run)
            (known if left is not None else unknown).append((left or 0, took))
        free = self._free(view)
        soonest = _freed(need, free, [*unknown, *known])
        return soonest, _freed(need, free, known)

    def _left_ms(self, run: RunView) -> int | None:
        """How long a task run still takes, `None` if that is not known."""
        work = run.remaining
        if work is None or work.estimated or not run.running:
            return None
        left = work.left_ms(self._snapshot.now_ms)
        return left * MILLION // max(1, work.pace_ppm) if left else None


def _endless(offering: Offering, now: Millis) -> bool:
    """Whether as many of an offering may be bought as anybody wants."""
    return offering.limit is None and offering.available(now)


def _freed(need: Resources, free: Resources, ends: Iterable[tuple[int, Resources]]) -> int:
    """When there is room, as tasks end one after the other."""
    if need.fits(free):
        return 0
    for after, took in sorted(ends):
        free = free + took
        if need.fits(free):
            return after
    return _NEVER_MS


def _without(
    seen: Snapshot,
    runs: Collection[RunId],
    instances: Collection[InstanceId] = (),
    slots: Mapping[OfferingId, int] | None = None,
) -> Snapshot:
    """A snapshot without some waiting task runs, and without instances and those who are there.

    Args:
        seen: The snapshot.
        runs: Task runs that wait.
        instances: Instances; they count no more towards the limits, which are lower by as many.
        slots: By how much limits are lower besides.
    """
    if not runs and not instances and not slots:
        return seen
    gone = {run.id for run in seen.runs if run.id in runs or run.instance in instances}
    held = {run.job for run in seen.runs if run.id in gone}
    lower = Counter(slots or {})
    lower.update(view.offering.id for view in seen.instances if view.id in instances)
    jobs = []
    for job in seen.jobs:
        if job.id in held:
            left = tuple(name for name in job.runs if name not in gone)
            if left:
                jobs.append(replace(job, runs=left))
        else:
            jobs.append(job)
    gangs = {job.id for job in jobs if job.id in held and job.kind is JobKind.GANG}
    return replace(
        seen,
        jobs=tuple(jobs),
        runs=tuple(
            # What is left of a gang stays where it is.
            replace(run, pinned=True) if run.job in gangs else run
            for run in seen.runs
            if run.id not in gone
        ),
        instances=tuple(view for view in seen.instances if view.id not in instances),
        catalog=tuple(
            replace(it, limit=max(0, it.limit - lower[it.id]))
            if it.limit is not None and lower[it.id]
            else it
            for it in seen.catalog
        ),
    )
