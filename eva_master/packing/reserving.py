"""Room that is kept for the most urgent of those who wait, where what can be bought is limited.

Else a large job would never start: whatever becomes free is soon enough for a small one, and never
for it. So before a policy plans, whoever is less urgent is kept from what the urgent could use: by
hiding from the policy what is not to be touched. Where the operator allows it, those who run and
are less urgent are hidden too, and suspended if the policy gives their room to the urgent. A gang
that waits for a member's place yields the places of the others in any case: else both might wait
for each other for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import Offering
from eva_master.model.ids import MILLION, InstanceId, JobId, Millis, OfferingId, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Hold, Plan, Suspend
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import InstanceView, JobView, RunView, Snapshot
from eva_master.model.planning.suspension import Preemption
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.hidden_members import hidden_members, with_hidden
from eva_master.packing.preempting import Load, Makeroom, Member, Room, Victim, assigned
from eva_master.packing.valuation.reservation_price import Demand, hosts

_NEVER_MS = 10**15
_MOST_DEMANDS = 32
"""For so many different demands room is kept in one round, the most urgent first; a demand that
waits at two priorities counts twice. So users who choose thousands of priorities or sizes delay
nobody: the others are planned for like everybody else."""

_MOST_STEPS = 5_000
"""How far the search goes for those who are suspended, in one round."""

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
        victims: Who is suspended if the urgent get their room, and for which job.
        whole: The snapshot with the victims in it.
        members: Members of pools that are kept, which the policy did not see.
    """

    snapshot: Snapshot
    holds: Mapping[RunId, str] = field(default_factory=dict)
    urgent: frozenset[RunId] = frozenset()
    occasion: Occasion = ()
    rivals: Mapping[RunId, JobId] = field(default_factory=dict)
    victims: Sequence[tuple[Victim, JobId]] = ()
    whole: Snapshot | None = None
    members: tuple[InstanceView, ...] = ()

    def completed(self, plan: Plan) -> Plan:
        """A plan for the whole snapshot: with why those wait whom the policy did not see."""
        if not self.holds and not self.rivals and not self.victims:
            return plan
        entries = [
            replace(entry, reason=self._told(entry))
            if isinstance(entry, Hold) and entry.run in self.rivals
            else entry
            for entry in plan.entries
            if entry.run not in self.holds
        ]
        entries.extend(Hold(run, why) for run, why in self.holds.items())
        entries.extend(self._suspends(plan))
        return replace(plan, entries=tuple(entries), pools=with_hidden(plan.pools, self.members))

    def _suspends(self, plan: Plan) -> Iterator[Suspend]:
        """The victims without whom there is no room, those first who can be spared least."""
        if self.whole is None or self.urgent.isdisjoint(assigned(plan)):
            return
        whole = with_sizes(self.whole, {entry.job: entry.members for entry in plan.sizes})
        load = Load(whole, plan, {run for it, _ in self.victims for run in it.runs})
        priorities = {view.id: view.priority for view in whole.jobs}
        for victim, job in sorted(self.victims, key=lambda it: it[0].price, reverse=True):
            if not load.stays(victim):
                higher = priorities[job] > priorities[victim.job]
                why = "has a higher priority" if higher else "was submitted before"
                reason = f"makes room for {job}, which {why}"
                yield from (Suspend(run, reason, job) for run in victim.runs)

    def _told(self, hold: Hold) -> str:
        return f"room is kept for {self.rivals[hold.run]}, which has a higher priority"


def reserve(
    snapshot: Snapshot,
    refused: Collection[Occasion] = (),
    ignored: Collection[JobId] = (),
    preemption: Preemption = Preemption.NEVER,
) -> Reserved:
    """Keep room for the most urgent of those who wait.

    Those are kept room for whose priority is higher than another job's, and who can only run on
    offerings that are limited or not to be had. If some of them fit, they are planned for alone
    with those whom they do not concern; likewise if they fit once others are suspended. Those that
    do not fit have kept for them what will be free first: as it is known when tasks end, that many
    instances; else all that they could use.

    At most `_MOST_DEMANDS` demands are looked at.

    Args:
        snapshot: The cluster.
        refused: Occasions on which a policy has found no place for who seemed to fit.
        ignored: Jobs for which nothing is kept, since they could not use it now.
        preemption: Whether those who run may be suspended for those of higher priority.
    """
    priorities = {job.priority for job in snapshot.jobs}
    if len(priorities) <= 1 or all(_endless(it, snapshot.now_ms) for it in snapshot.catalog):
        return Reserved(snapshot)
    holds: dict[RunId, str] = {}
    rivals: dict[RunId, JobId] = {}
    seen, demands, steps = snapshot, _MOST_DEMANDS, _MOST_STEPS
    while demands > 0:
        cluster = _Cluster(seen)
        level = cluster.most_urgent(min(priorities), ignored, demands)
        if not level:
            break
        demands -= len(_demands(level))
        below = cluster.rivals(level)
        fitting = cluster.fitting(level)
        occasion = cluster.occasion(fitting)
        if fitting and occasion not in refused:
            later = {run.id for unit in below for run in unit.runs}
            urgent = frozenset(run.id for unit in fitting for run in unit.runs)
            members = hidden_members(snapshot, seen)
            return Reserved(_without(seen, later), holds, urgent, occasion, rivals, members=members)
        if steps > 0:
            seated, steps = cluster.seated(level, steps, preemption)
            occasion = cluster.occasion([unit for unit, _ in seated], preempting=True)
            if seated and occasion not in refused:
                later = {run.id for unit in below for run in unit.runs}
                return replace(
                    _preempting(_without(seen, later), holds, rivals, occasion, seated),
                    members=hidden_members(snapshot, seen),
                )
        kept, slots = cluster.kept(level)
        told = cluster.told(level, kept)
        holds.update(told)
        first = level[0].job.id
        rivals.update((run.id, first) for unit in below for run in unit.runs)
        seen = _without(seen, told, kept, slots)
    return Reserved(seen, holds, rivals=rivals, members=hidden_members(snapshot, seen))


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

    def most_urgent(self, lowest: int, ignored: Collection[JobId], demands: int) -> list[_Unit]:
        """Those of the highest priority who wait for room, in order; of none as low as the lowest.

        Who would not fit into the empty cluster waits for something else.

        Args:
            lowest: The lowest priority of all.
            ignored: Jobs for which nothing is kept.
            demands: As many different ones, those that come first; the first unit in any case.
        """
        by_priority: defaultdict[int, list[JobView]] = defaultdict(list)
        for job in self._snapshot.jobs:
            if job.priority > lowest and job.id not in ignored:
                by_priority[job.priority].append(job)
        for priority in sorted(by_priority, reverse=True):
            jobs = sorted(by_priority[priority], key=_order)
            units = [
                unit
                for job in jobs
                for unit in self._waiting(job)
                if not self._buyable(unit) and self._possible(unit)
            ]
            if units:
                return _first(units, demands)
        return []

    def rivals(self, level: Sequence[_Unit]) -> list[_Unit]:
        """Those less urgent who wait, and could use what these could."""
        demands = _demands(level)
        wanted = [
            it for it in self._offerings.values() if any(hosts(it, demand) for demand in demands)
        ]
        could: dict[Demand, bool] = {}
        for run in self._snapshot.runs:
            demand = run.task.demand
            if demand not in could:
                could[demand] = any(hosts(it, demand) for it in wanted)
        return [
            unit
            for job in self._snapshot.jobs
            if job.priority < level[0].job.priority
            for unit in self._waiting(job)
            if any(could[run.task.demand] for run in unit.runs)
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
        slots, found = dict(self._slots), []
        full: set[Demand] = set()
        for unit in level:
            demand = unit.runs[0].task.demand
            alone = len(unit.runs) == 1
            if alone:
                # There is never more room than there was for the one before.
                if demand not in full and self._put(unit.runs[0], rooms, slots):
                    found.append(unit)
                else:
                    full.add(demand)
                continue
            trial, left = [replace(room) for room in rooms], dict(slots)
            if all(self._put(run, trial, left) for run in unit.runs):
                rooms, slots = trial, left
                found.append(unit)
        return found

    def seated(
        self, level: Sequence[_Unit], steps: int, preemption: Preemption
    ) -> tuple[list[tuple[_Unit, tuple[Victim, ...]]], int]:
        """Those for whom there is room once others yield, and who these are; in order.

        Args:
            level: Those who wait, of one priority.
            steps: How far to search.
            preemption: Whether those who run may be suspended.

        Returns:
            Them, and how many steps are left.
        """
        victims = self._victims(level[0].job, preemption)
        if not victims:
            return [], steps
        free: dict[Room, Resources] = {view.id: self._free(view) for view in self._live.values()}
        sizes: dict[Room, Offering] = {view.id: view.offering for view in self._live.values()}
        most = max(len(unit.runs) for unit in level)
        for name, number in self._slots.items():
            for slot in range(min(number, most)):
                sizes[name, slot] = self._offerings[name]
                free[name, slot] = self._offerings[name].type.capacity
        search = Makeroom(free, victims, steps)
        kinds: dict[Demand, Member] = {}
        found = []
        yielding = {victim.job for victim in victims}
        for unit in (it for it in level if it.job.id not in yielding):
            members = [self._rooms(run.task.demand, sizes, kinds) for run in unit.runs]
            limited = [member for member in members if member is not None]
            chosen = search.seat(limited)
            if chosen:
                found.append((unit, chosen))
            if search.steps <= 0:
                break
        return found, search.steps

    def _rooms(
        self, demand: Demand, sizes: Mapping[Room, Offering], known: dict[Demand, Member]
    ) -> Member | None:
        """What a task takes of each room that can host it; `None` if it can be bought for."""
        if any(hosts(it, demand) for it in self._unlimited):
            return None
        if demand not in known:
            needs = dict(demand)
            known[demand] = {
                room: needs[it.type.family] for room, it in sizes.items() if hosts(it, demand)
            }
        return known[demand]

    def _victims(self, first: JobView, preemption: Preemption) -> list[Victim]:
        """Who comes after a job and waits for a member's place, or runs and is less urgent."""
        found = []
        prices: dict[Demand, int] = {}
        for job in self._snapshot.jobs:
            if _order(job) <= _order(first):
                continue
            runs = [self._runs[name] for name in job.runs]
            gang = job.kind is JobKind.GANG
            if gang and self._gathers(runs):
                found.append(Victim(job.id, job.runs, -1, 0, self._frees(runs)))
            if preemption is not Preemption.SUSPEND or job.priority == first.priority:
                continue
            for group in [runs] if gang else [[run] for run in runs]:
                if all(
                    run.running and not run.pinned and run.instance in self._live for run in group
                ):
                    found.append(self._victim(job, group, prices))
        return found

    def _gathers(self, runs: Sequence[RunView]) -> bool:
        """Whether some members of a gang have a place, others none, and nobody runs."""
        if any(run.running or run.pinned for run in runs):
            return False
        return len({run.instance in self._live for run in runs}) > 1

    def _victim(self, job: JobView, group: Sequence[RunView], prices: dict[Demand, int]) -> Victim:
        cost = 0
        for run in group:
            assert run.instance is not None
            demand = run.task.demand
            if demand not in prices:
                could = (it.price for it in self._snapshot.catalog if hosts(it, demand))
                prices[demand] = min(could, default=self._live[run.instance].offering.price)
            cost += prices[demand] * (job.checkpoint_ms + job.launch_ms)
        names = tuple(run.id for run in group)
        return Victim(job.id, names, job.priority, cost, self._frees(group))

    def _frees(self, group: Iterable[RunView]) -> Mapping[InstanceId, Resources]:
        """What task runs take of the instances on which they have a place."""
        frees: dict[InstanceId, Resources] = {}
        for run in group:
            if run.instance in self._live:
                assert run.instance is not None
                family = self._live[run.instance].offering.type.family
                took = run.task.demand_on(family) or NOTHING
                frees[run.instance] = frees.get(run.instance, NOTHING) + took
        return frees

    def occasion(self, fitting: Sequence[_Unit], *, preempting: bool = False) -> Occasion:
        """What decides whether a policy finds a place for these."""
        runs = tuple(run.id for unit in fitting for run in unit.runs)
        residents = tuple((view.id, view.residents) for view in self._snapshot.instances)
        return runs, residents, tuple(sorted(self._slots.items())), preempting

    def kept(self, level: Sequence[_Unit]) -> tuple[set[InstanceId], Counter[OfferingId]]:
        """The instances, and how many of an offering that may still be bought, kept for these."""
        demands = _demands(level)
        slots = Counter(
            {
                name: number
                for name, number in self._slots.items()
                if number and any(hosts(self._offerings[name], demand) for demand in demands)
            }
        )
        free: dict[InstanceId, tuple[int, int]] = {}
        for view in self._live.values():
            bounds = [self._drained(view, demand) for demand in demands]
            possible = [bound for bound in bounds if bound is not None]
            if possible:
                free[view.id] = min(low for low, _ in possible), max(high for _, high in possible)
        needed = sum(len(unit.runs) for unit in level) - sum(slots.values())
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

    def _drained(self, view: InstanceView, wanted: Demand) -> tuple[int, int] | None:
        """How long it takes until there is room for a task run if nobody comes, at least and most.

        In milliseconds; `None` if there never is.
        """
        family = view.offering.type.family
        need = dict(wanted).get(family)
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


def _order(job: JobView) -> tuple[int, Millis, JobId]:
    """Who comes first."""
    return -job.priority, job.submitted_ms, job.id


def _demands(units: Iterable[_Unit]) -> list[Demand]:
    """What their task runs need, each once."""
    return list(dict.fromkeys(run.task.demand for unit in units for run in unit.runs))


def _first(units: Sequence[_Unit], demands: int) -> list[_Unit]:
    """Those that come first, of so many demands; the first unit in any case."""
    known: set[Demand] = set()
    found: list[_Unit] = []
    for unit in units:
        new = {run.task.demand for run in unit.runs} - known
        if not found or len(known) + len(new) <= demands:
            known |= new
            found.append(unit)
    return found


def _preempting(
    seen: Snapshot,
    holds: Mapping[RunId, str],
    rivals: Mapping[RunId, JobId],
    occasion: Occasion,
    seated: Sequence[tuple[_Unit, tuple[Victim, ...]]],
) -> Reserved:
    """What a policy gets to see where some are to be suspended: a cluster without them."""
    victims = [(victim, unit.job.id) for unit, chosen in seated for victim in chosen]
    gone = {run for victim, _ in victims for run in victim.runs}
    shown = _without(seen, gone)
    instances = tuple(
        replace(view, residents=tuple(run for run in view.residents if run not in gone))
        for view in shown.instances
    )
    urgent = frozenset(run.id for unit, _ in seated for run in unit.runs)
    shown = replace(shown, instances=instances)
    return Reserved(shown, holds, urgent, occasion, rivals, victims, seen)


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
