"""Free room of a snapshot, and the room that becomes free, for the questions of claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.model.catalog import NO_ZONE, Offering
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.planning.suspension import Preemption
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import by_id
from eva_master.packing.deadlines.sparing import would_be_late
from eva_master.packing.precedence import precedence
from eva_master.packing.preempting import Member, Room, Victim, VictimSearch
from eva_master.packing.room import (
    by_offering,
    more_of,
    need_on,
    room_beside,
    room_left,
    with_lower_limits,
)
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.packing.valuation.migration_cost import stop_cost
from eva_master.packing.valuation.reservation_price import Demand, hosts
from eva_master.packing.zones import is_within, keeps_to_one_zone, zones_of, zones_that_hold
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, Millis, OfferingId, RunId

NEVER_MS = 10**15


@dataclass(frozen=True, slots=True)
class ClaimUnit:
    """Waiting task runs that are placed together."""

    job: JobView
    runs: tuple[RunView, ...]


@dataclass(frozen=True, slots=True)
class ClaimedRoom:
    """Room that is kept for a claim.

    Attributes:
        instances: Live instances that may be the first to have room.
        slots: How many more instances of each offering.
        after_ms: In how many milliseconds enough of these instances have room, at the soonest.
    """

    instances: frozenset[InstanceId]
    slots: Counter[OfferingId]
    after_ms: int


@dataclass(slots=True)
class _Room:
    """Room that is free on an instance, live or not bought yet."""

    offering: Offering
    free: Resources
    id: InstanceId | None = None


class FreeRoom:
    """Free room of a snapshot: it is taken by first fit, live instances before new ones.

    Args:
        snapshot: The cluster.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._live = {view.id: view for view in snapshot.instances}
        self._runs = by_id(snapshot.runs)
        self._jobs = by_id(snapshot.jobs)
        used = by_offering(snapshot.instances)
        now = snapshot.now_ms
        self._offerings = {view.offering.id: view.offering for view in snapshot.instances}
        self._offerings |= {offering.id: offering for offering in snapshot.catalog}
        self._most = {
            name: max(used[name], offering.limit if offering.limit is not None else used[name])
            for name, offering in self._offerings.items()
        }
        self._unlimited = [offering for offering in snapshot.catalog if endless(offering, now)]
        offerings = {name: view.offering for name, view in self._live.items()}
        self._free = room_left(offerings, snapshot.runs)
        self._residents: defaultdict[InstanceId, list[RunView]] = defaultdict(list)
        for run in snapshot.runs:
            if run.instance in self._live:
                assert run.instance is not None
                self._residents[run.instance].append(run)
        self._slots = {
            offering.id: max(0, more)
            for offering in snapshot.catalog
            if (more := more_of(offering, used)) is not None and offering.available(now)
        }
        self._rooms = [
            _Room(view.offering, self._free[view.id], view.id)
            for view in sorted(self._live.values(), key=lambda view: view.id)
        ]
        self._valuation = JobValuation(snapshot.catalog, snapshot.standalone)
        self._hosting: dict[Demand, frozenset[OfferingId]] = {}
        self._zoned = len(zones_of(self._offerings.values())) > 1

    # -- waiting task runs -----------------------------------------------------------------------

    def waiting(self, job: JobView) -> list[ClaimUnit]:
        """Task runs of a job that wait for a place, gangs together; none for an absent job."""
        view = self._jobs.get(job.id)
        runs = [
            run
            for name in (() if view is None else view.runs)
            if (run := self._runs[name]).instance not in self._live and not run.pinned
        ]
        if not runs:
            return []
        if job.spec.kind is JobKind.GANG:
            return [ClaimUnit(job, tuple(runs))]
        return [ClaimUnit(job, (run,)) for run in runs]

    def claimants(self, claim: Claim) -> list[ClaimUnit]:
        """Task runs of a claim that wait still, in its order."""
        wanted = dict.fromkeys(claim.runs)
        jobs = dict.fromkeys(self._runs[run].job for run in wanted if run in self._runs)
        units = [unit for job in jobs for unit in self.waiting(self._jobs[job])]
        return [unit for unit in units if any(run.id in wanted for run in unit.runs)]

    def rivals(self, claim: Claim, level: Sequence[ClaimUnit]) -> list[ClaimUnit]:
        """Waiting task runs that come after a claim, and could use what its own could."""
        wanted = frozenset(name for demand in demands(level) for name in self._hosts(demand))
        ours = {run.id for unit in level for run in unit.runs}
        return [
            unit
            for job in self._snapshot.jobs
            if job.priority < claim.priority or (claim.equals and job.priority == claim.priority)
            for unit in self.waiting(job)
            if any(
                run.id not in ours and not wanted.isdisjoint(self._hosts(run.task.demand))
                for run in unit.runs
            )
        ]

    def hosting(self, unit: ClaimUnit) -> frozenset[OfferingId]:
        """The offerings that can host a task of a unit."""
        return frozenset(name for demand in demands([unit]) for name in self._hosts(demand))

    def buyable(self, unit: ClaimUnit) -> bool:
        """Whether all of a unit can be bought for, whatever others do."""
        return any(
            all(self._endless(run.task.demand, zone) for run in unit.runs)
            for zone in self._zones(unit)
        )

    def possible(self, unit: ClaimUnit) -> bool:
        """Whether there would be room if nobody else were there."""
        return any(self._together(unit, [], dict(self._most), zone) for zone in self._zones(unit))

    # -- free room -------------------------------------------------------------------------------

    def take(self, units: Iterable[ClaimUnit]) -> list[ClaimUnit]:
        """Take room for as many of some units as there is now, in order; says for which."""
        fitting: list[ClaimUnit] = []
        full: set[Demand] = set()
        for unit in units:
            demand = unit.runs[0].task.demand
            if len(unit.runs) == 1:
                # There is never more room than there was for the one before.
                if demand not in full and self._put(unit.runs[0], self._rooms, self._slots):
                    fitting.append(unit)
                else:
                    full.add(demand)
                continue
            for zone in self._zones(unit):
                trial, slots = [replace(room) for room in self._rooms], dict(self._slots)
                if self._together(unit, trial, slots, zone):
                    self._rooms, self._slots = trial, slots
                    fitting.append(unit)
                    break
        return fitting

    def fitting_on(
        self, units: Iterable[ClaimUnit], instances: Collection[InstanceId]
    ) -> list[ClaimUnit]:
        """Units for which there is free room on some live instances, one after the other."""
        rooms = [replace(room) for room in self._rooms if room.id in instances]
        return [
            unit
            for unit in units
            if any(self._together(unit, rooms, {}, zone) for zone in self._zones(unit))
        ]

    def _zones(self, unit: ClaimUnit) -> Sequence[str]:
        """The zones one of which is to have all of a unit; `NO_ZONE` alone for any place."""
        if not self._zoned or len(unit.runs) == 1 or not keeps_to_one_zone(unit.job.spec):
            return (NO_ZONE,)
        return zones_that_hold([run.task for run in unit.runs], self._snapshot) or (NO_ZONE,)

    def _together(
        self, unit: ClaimUnit, rooms: list[_Room], slots: dict[OfferingId, int], zone: str
    ) -> bool:
        """Take room for all task runs of a unit; what is taken stays taken if that fails."""
        return all(self._put(run, rooms, slots, zone) for run in unit.runs)

    def _put(
        self,
        run: RunView,
        rooms: list[_Room],
        slots: dict[OfferingId, int],
        zone: str = NO_ZONE,
    ) -> bool:
        """Take room for a task run, of a new instance if need be."""
        for room in rooms:
            if not is_within(room.offering, zone):
                continue
            need = run.task.demand_on(room.offering.type.family)
            if need is not None and need.fits(room.free):
                room.free = room.free - need
                return True
        for name, number in slots.items():
            offering = self._offerings[name]
            if number and is_within(offering, zone) and hosts(offering, run.task.demand):
                slots[name] -= 1
                rooms.append(_Room(offering, room_beside(offering, need_on(run.task, offering))))
                return True
        return self._endless(run.task.demand, zone)

    def _endless(self, demand: Demand, zone: str = NO_ZONE) -> bool:
        return any(
            is_within(offering, zone) and hosts(offering, demand) for offering in self._unlimited
        )

    def _hosts(self, demand: Demand) -> frozenset[OfferingId]:
        """The offerings that can host a task."""
        if demand not in self._hosting:
            self._hosting[demand] = frozenset(
                name for name, offering in self._offerings.items() if hosts(offering, demand)
            )
        return self._hosting[demand]

    # -- room that is made -----------------------------------------------------------------------

    def seated(
        self, level: Sequence[ClaimUnit], steps: int, preemption: Preemption
    ) -> tuple[list[tuple[ClaimUnit, tuple[Victim, ...]]], int]:
        """Units for which there is room once others yield, with these others; in order.

        Args:
            level: Units of one priority that wait.
            steps: How far to search.
            preemption: Whether running task runs may be suspended.

        Returns:
            Them, and how many steps are left.
        """
        victims = self._victims(level[0].job, preemption)
        if not victims:
            return [], steps
        free = dict[Room, Resources](self._free.items())
        sizes: dict[Room, Offering] = {view.id: view.offering for view in self._live.values()}
        most = max(len(unit.runs) for unit in level)
        for name, number in self._slots.items():
            for slot in range(min(number, most)):
                sizes[name, slot] = self._offerings[name]
                free[name, slot] = self._offerings[name].type.capacity
        search = VictimSearch(free, victims, steps)
        kinds: dict[tuple[Demand, str], Member] = {}
        seated: list[tuple[ClaimUnit, tuple[Victim, ...]]] = []
        yielding = {victim.job for victim in victims}
        for unit in (unit for unit in level if unit.job.id not in yielding):
            for zone in self._zones(unit):
                members = [self._member(run.task.demand, sizes, kinds, zone) for run in unit.runs]
                chosen = search.seat([member for member in members if member is not None])
                if chosen:
                    seated.append((unit, chosen))
                if chosen is not None or search.steps <= 0:
                    break
            if search.steps <= 0:
                break
        return seated, search.steps

    def _member(
        self,
        demand: Demand,
        sizes: Mapping[Room, Offering],
        kinds: dict[tuple[Demand, str], Member],
        zone: str,
    ) -> Member | None:
        """Share that a task takes of each room that can host it; `None` if it can be bought for."""
        if self._endless(demand, zone):
            return None
        if (demand, zone) not in kinds:
            needs = dict(demand)
            kinds[demand, zone] = {
                room: needs[offering.type.family]
                for room, offering in sizes.items()
                if is_within(offering, zone) and hosts(offering, demand)
            }
        return kinds[demand, zone]

    def _victims(self, first: JobView, preemption: Preemption) -> list[Victim]:
        """Gangs that come after a job and lack a member's place, and running jobs less urgent."""
        victims = []
        comers = [self._runs[name] for name in first.runs]
        for job in self._snapshot.jobs:
            if precedence(job) <= precedence(first):
                continue
            runs = [self._runs[name] for name in job.runs]
            gang = job.spec.kind is JobKind.GANG
            if gang and self._gathers(runs):
                victims.append(Victim(job.id, job.runs, -1, 0, self._frees(runs)))
            if preemption is not Preemption.SUSPEND or job.priority >= first.priority:
                continue
            if would_be_late(job, comers, self._snapshot.now_ms):
                continue
            for group in [runs] if gang else [[run] for run in runs]:
                if all(
                    run.running and not run.pinned and run.instance in self._live for run in group
                ):
                    victims.append(self._victim(job, group))
        return victims

    def _gathers(self, runs: Sequence[RunView]) -> bool:
        """Whether some members of a gang have a place, others none, and none runs."""
        if any(run.running or run.pinned for run in runs):
            return False
        return len({run.instance in self._live for run in runs}) > 1

    def _victim(self, job: JobView, group: Sequence[RunView]) -> Victim:
        cost = stop_cost(job, group, self._valuation)
        names = tuple(run.id for run in group)
        return Victim(job.id, names, job.priority, cost, self._frees(group))

    def _frees(self, group: Iterable[RunView]) -> Mapping[InstanceId, Resources]:
        """Resources that task runs take of the instances on which they have a place."""
        frees: dict[InstanceId, Resources] = {}
        for run in group:
            if run.instance in self._live:
                assert run.instance is not None
                family = self._live[run.instance].offering.type.family
                took = run.task.demand_on(family) or NOTHING
                frees[run.instance] = frees.get(run.instance, NOTHING) + took
        return frees

    # -- room that becomes free ------------------------------------------------------------------

    def kept(self, level: Sequence[ClaimUnit]) -> ClaimedRoom:
        """The instances, and how many of each offering that may be bought, to keep for units.

        As it is known when tasks end, that many instances as are needed; else all that might be
        the first to have room.
        """
        wanted = demands(level)
        slots = Counter(
            {
                name: number
                for name, number in self._slots.items()
                if number and any(hosts(self._offerings[name], demand) for demand in wanted)
            }
        )
        free: dict[InstanceId, tuple[int, int]] = {}
        for view in self._live.values():
            bounds = [self._drained(view, demand) for demand in wanted]
            possible = [bound for bound in bounds if bound is not None]
            if possible:
                free[view.id] = min(low for low, _ in possible), max(high for _, high in possible)
        needed = sum(len(unit.runs) for unit in level) - sum(slots.values())
        latest = sorted(high for _, high in free.values())
        certain = latest[needed - 1] if 0 < needed <= len(latest) else NEVER_MS
        kept = {name: low for name, (low, _) in free.items() if low <= certain}
        soonest = sorted(kept.values())
        after_ms = soonest[needed - 1] if 0 < needed <= len(soonest) else 0
        return ClaimedRoom(frozenset(kept), slots, after_ms)

    def _drained(self, view: InstanceView, wanted: Demand) -> tuple[int, int] | None:
        """Time until there is room for a task run if no other comes, at least and at most.

        Both are in milliseconds; `None` if there never is room.
        """
        family = view.offering.type.family
        need = dict(wanted).get(family)
        if need is None or not need.fits(view.offering.type.capacity):
            return None
        predicted: list[tuple[int, Resources]] = []
        unknown: list[tuple[int, Resources]] = []
        for run in self._residents[view.id]:
            took = run.task.demand_on(family) or NOTHING
            rest_ms = left_ms(run, self._snapshot.now_ms)
            (predicted if rest_ms is not None else unknown).append((rest_ms or 0, took))
        free = self._free[view.id]
        soonest = _freed(need, free, [*unknown, *predicted])
        return soonest, _freed(need, free, predicted)


def demands(units: Iterable[ClaimUnit]) -> list[Demand]:
    """Demands of the task runs of units, each once."""
    return list(dict.fromkeys(run.task.demand for unit in units for run in unit.runs))


def endless(offering: Offering, now: Millis) -> bool:
    """Whether as many of an offering may be bought as anybody wants."""
    return offering.limit is None and offering.available(now)


def left_ms(run: RunView, now: Millis) -> int | None:
    """Remaining running time of a task run, `None` if unknown or not running."""
    if run.remaining is None or not run.running:
        return None
    return run.remaining.ends_in_ms(now) or None


def _freed(need: Resources, free: Resources, ends: Iterable[tuple[int, Resources]]) -> int:
    """When there is room, as tasks end one after the other."""
    if need.fits(free):
        return 0
    for after, took in sorted(ends):
        free = free + took
        if need.fits(free):
            return after
    return NEVER_MS


def without(
    seen: Snapshot,
    runs: Collection[RunId],
    instances: Collection[InstanceId] = (),
    slots: Mapping[OfferingId, int] | None = None,
) -> Snapshot:
    """A snapshot without some waiting task runs, and without instances and their task runs.

    Args:
        seen: The snapshot.
        runs: Task runs that wait.
        instances: Instances to remove; limits are reduced by their number.
        slots: Further reductions of limits.
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
            remaining = tuple(name for name in job.runs if name not in gone)
            if remaining:
                jobs.append(replace(job, runs=remaining))
        else:
            jobs.append(job)
    gangs = {job.id for job in jobs if job.id in held and job.spec.kind is JobKind.GANG}
    return replace(
        seen,
        jobs=tuple(jobs),
        runs=tuple(
            # The other members of a gang stay where they are.
            replace(run, pinned=True) if run.job in gangs else run
            for run in seen.runs
            if run.id not in gone
        ),
        instances=tuple(view for view in seen.instances if view.id not in instances),
        catalog=with_lower_limits(seen.catalog, lower),
    )
