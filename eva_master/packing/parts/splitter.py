"""A policy for some jobs in front of another one for all others.

Neither knows of the other: each sees its own jobs and instances, and the one in front chooses
first what is bought. Instances that its plan leaves are there for the other one at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass

from eva_master.model.fleet.partitions import ShortJobs
from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Json, Plan, PolicyMemory
from eva_master.model.planning.snapshot import (
    BackPolicyRoom,
    InstanceView,
    RunView,
    SharedInstance,
    SharedRoom,
    Snapshot,
)
from eva_master.model.planning.standing import Line, Newcomers, Pool
from eva_master.model.resources import Resources, total
from eva_master.model.values import by_id, replace
from eva_master.packing.claims.asking import ask
from eva_master.packing.parts.partition import divide, merge, without_launched
from eva_master.packing.parts.spare_nodes import spare_nodes, taken, without_members
from eva_master.packing.room import room_beside
from eva_master.ports import Planned, Policy
from eva_wire.values.ids import Family, InstanceId, JobId, RunId

_VERSION = 1
_ROOMS_KEPT = 4_096
"""Number of distinct shared rooms that are interned."""
_FRONT = "short."
"""Prefix of the names of the front policy's pools."""


def below(limit_ms: int) -> Callable[[JobView], bool]:
    """Make the test for short jobs: half of their tasks are expected to take less, or users say so.

    A job without an estimate and without a statement is not short.
    """
    short = ShortJobs(limit_ms)

    def is_short(job: JobView) -> bool:
        estimate = job.progress.estimate
        return short.has(job.spec.latency, None if estimate is None else estimate.usual_ms)

    return is_short


class Splitter:
    """Implements `eva_master.ports.Policy` with two policies.

    A job of the front policy remains so until it ends, however long it turns out to take. A job
    that has a place is not taken over, except from an open line of the front policy, which is open
    to its jobs alone. Instances are the front policy's if they stand in its pools, or if all of
    their tasks are of its jobs; so are empty instances outside pools, until it leaves them. A front
    job that shares an instance with a job of the other policy is the other policy's, too. The front
    policy can see which tasks run for longer than short tasks should (`RunView.long`).

    If the front policy shares, its instances are those in its pools alone. All others are
    in `Snapshot.beside`, and its lines may claim their free room in a shared pool. Its tasks there
    are pinned for the other policy, and hidden from itself.

    Gangs of several tasks, which stand in no line, are the other policy's.

    Args:
        front: Policy for the chosen jobs.
        back: Policy for all other jobs.
        chosen: Whether an arriving job is the front policy's.
        shares: Whether the front policy shares.
        short: Definition of the front policy's jobs for other parts of the system: jobs that may
            come to its lines at once, and whose tasks may turn out to be long; `None` for none.
    """

    def __init__(
        self,
        front: Policy,
        back: Policy,
        chosen: Callable[[JobView], bool],
        *,
        shares: bool = False,
        short: ShortJobs | None = None,
    ) -> None:
        self._short = short
        self._shares = shares
        self._front = front
        self._back = back
        self._chosen = chosen
        self._shared_instances = _SharedInstances()

    @classmethod
    def of_short(cls, front: Policy, back: Policy, below_ms: int, *, shares: bool) -> Splitter:
        """A policy for jobs whose tasks take less than this, in front of another one."""
        short = ShortJobs(below_ms)
        return cls(front, back, below(below_ms), shares=shares, short=short)

    @property
    def name(self) -> str:
        """The names of both policies."""
        return f"{self._front.name}+{self._back.name}"

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """See `eva_master.ports.Policy.plan`."""
        if snapshot.claims and not snapshot.unclaimed:
            return ask(self, snapshot, memory)
        kept = self._read(memory)
        ours = self._ours(snapshot, kept)
        events = kept.events.after(snapshot, len(ours - kept.jobs), len(kept.jobs - ours))
        jobs: Set[JobId] = ours
        rooms: Set[InstanceId] = _standing_or_empty(snapshot)
        if not self._shares:
            jobs, rooms = _belonging(snapshot, ours)
        front, back = self._parts(snapshot, jobs, rooms)
        front = _own_pools(replace(front, arrivals=events.front[0], completions=events.front[1]))
        first, first_memory = self._front.plan(front, kept.front)
        spare = spare_nodes(front, first, back)
        if emptied := _emptied(front, first) | spare:
            _, back = self._parts(_vacated(snapshot, emptied), jobs, rooms - emptied)
        back = replace(back, arrivals=events.back[0], completions=events.back[1])
        second, second_memory = self._back.plan(without_launched(back, first), kept.back)
        first = without_members(first, taken(second, spare))
        after = _SplitterMemory(ours, events, first_memory, second_memory)
        first, second = self._opened(_named(first), second)
        plans = _sharing(first, second) if self._shares else (first, second)
        return _listed(merge(plans), snapshot), self._written(after)

    def _opened(self, front: Plan, back: Plan) -> tuple[Plan, Plan]:
        """Plans whose lines are open to the front policy's jobs at most."""
        newcomers = None if self._short is None else Newcomers(self._short)

        def opened(line: Line) -> Line:
            return line if line.open_to is None else replace(line, open_to=newcomers)

        def closed(line: Line) -> Line:
            return line if line.open_to is None else replace(line, open_to=None)

        return (
            replace(front, lines=tuple(map(opened, front.lines))),
            replace(back, lines=tuple(closed(line) for line in back.lines if line.jobs)),
        )

    def _parts(
        self, snapshot: Snapshot, jobs: Set[JobId], rooms: Set[InstanceId]
    ) -> tuple[Snapshot, Snapshot]:
        front, back = divide(snapshot, jobs, rooms)
        front = self._outlasting(front)
        if not self._shares:
            return front, back
        return _shared(snapshot, front, back, self._shared_instances)

    def _outlasting(self, front: Snapshot) -> Snapshot:
        """The front policy's part, which says which of its tasks have run for too long."""
        short, now = self._short, front.now_ms
        if short is None:
            return front
        runs = [
            replace(run, long=True)
            if run.running_since_ms is not None and short.outlasted(now - run.running_since_ms)
            else run
            for run in front.runs
        ]
        return replace(front, runs=tuple(runs))

    def _ours(self, snapshot: Snapshot, kept: _SplitterMemory) -> frozenset[JobId]:
        """Jobs of the front policy."""
        placed = [run for run in snapshot.runs if run.instance is not None]
        somewhere = {run.job for run in placed}
        pools = _own({run.pool for run in placed})
        lined = {run.job for run in placed if run.pool in pools} if pools else ()
        ours = set()
        for job in snapshot.jobs:
            if self._shares and not job.stands_in_line:
                continue
            waits = job.id not in somewhere
            kept_before = job.id in kept.jobs or job.id in snapshot.joined or job.id in lined
            if kept_before or ((waits or kept.new) and self._chosen(job)):
                ours.add(job.id)
        return frozenset(ours)

    def _read(self, memory: PolicyMemory | None) -> _SplitterMemory:
        if memory is None or memory.policy != self.name or memory.version != _VERSION:
            return _SplitterMemory()
        data = memory.data
        jobs, events = data["jobs"], data["events"]
        assert isinstance(jobs, list)
        assert isinstance(events, list)
        return _SplitterMemory(
            frozenset(JobId(str(job)) for job in jobs),
            _Events.of([int(str(number)) for number in events]),
            _memory(data["front"]),
            _memory(data["back"]),
            new=False,
        )

    def _written(self, kept: _SplitterMemory) -> PolicyMemory:
        events = kept.events
        return PolicyMemory(
            self.name,
            _VERSION,
            {
                "jobs": list[Json](sorted(kept.jobs)),
                "events": [*events.seen, *events.front, *events.back],
                "front": None if kept.front is None else asdict(kept.front),
                "back": None if kept.back is None else asdict(kept.back),
            },
        )


@dataclass(frozen=True, slots=True)
class _Events:
    """How many jobs have come and gone, of each; none ever grows less.

    Attributes:
        seen: Of all jobs, as of the round before.
        front: Of the front policy's.
        back: Of the others.
    """

    seen: tuple[int, int] = (0, 0)
    front: tuple[int, int] = (0, 0)
    back: tuple[int, int] = (0, 0)

    @staticmethod
    def of(numbers: Sequence[int]) -> _Events:
        """Restore the counts from the memory's numbers."""
        come, gone, first, second, third, fourth = numbers
        return _Events((come, gone), (first, second), (third, fourth))

    def after(self, snapshot: Snapshot, came: int, went: int) -> _Events:
        """Counts of the next round, after jobs came to and left the front policy."""
        arrived = snapshot.arrivals - self.seen[0]
        ended = snapshot.completions - self.seen[1]
        return _Events(
            (snapshot.arrivals, snapshot.completions),
            (self.front[0] + came, self.front[1] + went),
            (self.back[0] + max(0, arrived - came), self.back[1] + max(0, ended - went)),
        )


@dataclass(frozen=True, slots=True)
class _SplitterMemory:
    """Memory carried from round to round.

    Attributes:
        jobs: Jobs of the front policy.
        new: Whether there was no memory.
    """

    jobs: frozenset[JobId] = frozenset()
    events: _Events = _Events()
    front: PolicyMemory | None = None
    back: PolicyMemory | None = None
    new: bool = True


def _memory(document: Json) -> PolicyMemory | None:
    if not isinstance(document, dict):
        return None
    data = document["data"]
    return PolicyMemory(
        str(document["policy"]),
        int(str(document["version"])),
        data if isinstance(data, dict) else {},
    )


def _emptied(front: Snapshot, plan: Plan) -> set[InstanceId]:
    """Instances that the front policy's plan empties, or leaves empty."""
    goes = {entry.run: getattr(entry, "on", None) for entry in plan.entries}
    kept = {goes.get(run.id, run.instance) for run in front.runs}
    kept |= {member for pool in plan.pools for member in pool.members}
    unused = (view for view in front.instances if view.id not in kept)
    return {view.id for view in unused if view.residents or not view.pool}


def _vacated(snapshot: Snapshot, rooms: Set[InstanceId]) -> Snapshot:
    """A snapshot in which some instances are empty."""
    instances = tuple(
        replace(view, residents=()) if view.id in rooms else view for view in snapshot.instances
    )
    return replace(snapshot, instances=instances)


def _belonging(snapshot: Snapshot, ours: frozenset[JobId]) -> tuple[Set[JobId], Set[InstanceId]]:
    """The front policy's jobs and instances; a job is never divided from its instances."""
    places = {run.id: run.instance for run in snapshot.runs}
    job_of = {run.id: run.job for run in snapshot.runs}
    residents = {
        view.id: {job_of[run] for run in view.residents if run in job_of}
        for view in snapshot.instances
    }
    jobs = set(ours)
    rooms = {
        view.id
        for view in (*snapshot.instances, *snapshot.draining)
        if residents.get(view.id) or not view.pool or view.pool.startswith(_FRONT)
    }
    while True:
        shared = {room for room in rooms if not residents.get(room, set()) <= jobs}
        rooms -= shared
        divided = {
            job.id
            for job in snapshot.jobs
            if job.id in jobs
            and any(place is not None and place not in rooms for place in map(places.get, job.runs))
        }
        if not divided:
            return jobs, rooms
        jobs -= divided


def _standing_or_empty(snapshot: Snapshot) -> Set[InstanceId]:
    """The instances of a front policy that shares: in its pools, or empty and in none."""
    views = (*snapshot.instances, *snapshot.draining)
    pools = _own({view.pool for view in views})
    return {view.id for view in views if view.pool in pools or not (view.pool or view.residents)}


def _own(pools: Set[str]) -> Set[str]:
    """The front policy's pools, of some."""
    return {name for name in pools if name.startswith(_FRONT)}


def _shared(
    whole: Snapshot, front: Snapshot, back: Snapshot, views: _SharedInstances
) -> tuple[Snapshot, Snapshot]:
    """The snapshots of a sharing front policy and of the back policy, with guests in the latter.

    Args:
        whole: Both parts.
        front: The front part, with all of its jobs.
        back: The back part.
        views: Views of shared instances of the round before.
    """
    rooms = {view.id for view in (*front.instances, *front.draining)}
    guests = {
        run.id: run for run in front.runs if run.instance is not None and run.instance not in rooms
    }
    shared, waiting_ms = views.of(whole, back.instances, guests), None
    # Lines of the back policy make sure by themselves that no task is passed over for too long.
    if not any(view.pool for view in back.instances):
        waiting = [run for run in back.runs if run.instance is None]
        times = (run.since_ms for run in waiting if run.since_ms is not None)
        waiting_ms = min(times, default=None)
    beside = BackPolicyRoom(shared, waiting_ms)
    if not guests:
        return replace(front, beside=beside), back
    stay = [run for run in front.runs if run.id not in guests]
    hosted = {job.id: job for job in _of(front, guests.keys())}
    ours = {job.id for job in front.jobs}
    visiting = {name: replace(run, pinned=True) for name, run in guests.items()}
    back = replace(
        back,
        jobs=tuple(
            [
                hosted.get(job.id, job)
                for job in whole.jobs
                if job.id not in ours or job.id in hosted
            ]
        ),
        runs=tuple(
            [
                visiting.get(run.id, run)
                for run in whole.runs
                if run.job not in ours or run.id in visiting
            ]
        ),
    )
    front = replace(
        front, jobs=tuple(_of(front, {run.id for run in stay})), runs=tuple(stay), beside=beside
    )
    return front, back


class _SharedInstances:
    """Views of shared instances, made anew where an instance has changed since the last round."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[InstanceView, SharedInstance | None]] = {}
        """Views of instances with no guest by their identity, each with its shared view; `None`
        for an instance that is not shared.
        """
        self._rooms: dict[SharedRoom, SharedRoom] = {}
        """Equal rooms are one object, so that instances compare fast."""

    def of(
        self,
        whole: Snapshot,
        instances: tuple[InstanceView, ...],
        guests: Mapping[RunId, RunView],
    ) -> tuple[SharedInstance, ...]:
        """The shared instances with their free room.

        Args:
            whole: All task runs.
            instances: Instances of the back policy.
            guests: Task runs of the front policy on these.
        """
        before, hosts = self._before, {run.instance for run in guests.values()}
        if len(self._rooms) > _ROOMS_KEPT:
            self._rooms.clear()
        keys = list(map(id, instances))
        fresh = {
            key: (view, self._view(view, whole, guests))
            for key, view in zip(keys, instances, strict=True)
            if key not in before or view.id in hosts
        }
        pairs = [fresh[key] if key in fresh else before[key] for key in keys]
        self._before = dict(zip(keys, pairs, strict=True))
        for key in [key for key, (view, _) in fresh.items() if view.id in hosts]:
            del self._before[key]
        return tuple([shared for _, shared in pairs if shared is not None])

    def _view(
        self, view: InstanceView, whole: Snapshot, guests: Mapping[RunId, RunView]
    ) -> SharedInstance | None:
        """An instance as it is shared; `None` for one that is not."""
        if not view.ready or not (view.pool or not guests.keys() >= {*view.residents}):
            return None
        runs = by_id(whole.runs)
        family = view.offering.type.family
        residents = [guests.get(run, runs[run]) for run in view.residents if run in runs]
        visiting = [run.task for run in residents if run.id in guests and not run.long]
        staying = [run.task for run in residents if run.id not in guests or run.long]
        own = _needed(staying, family)
        free = room_beside(view.offering, own)
        if visiting:
            free = free - _needed(visiting, family)
        room = SharedRoom(view.offering, free, own)
        return SharedInstance(view.id, self._rooms.setdefault(room, room))


def _needed(tasks: Iterable[TaskSpec], family: Family) -> Resources:
    needs = (task.demand_on(family) for task in tasks)
    return total(need for need in needs if need is not None)


def _sharing(front: Plan, back: Plan) -> tuple[Plan, Plan]:
    """Both plans, with the front lines' claims extended to the other policy's pools.

    A front line claims room in those pools whose members the front policy stated in a shared pool;
    members of other pools are not shared. Front lines come first.
    """
    standing = {member: pool.name for pool in back.pools for member in pool.members}
    claims: dict[str, tuple[str, ...]] = {}
    pools = []
    for pool in front.pools:
        members = pool.members
        if pool.shared and standing:
            members = tuple([member for member in pool.members if member not in standing])
            names = dict.fromkeys(
                [standing[member] for member in pool.members if member in standing]
            )
            claims[pool.name] = (*((pool.name,) if members else ()), *names)
        if members:
            pools.append(replace(pool, members=members))
    if not any(claims.values()):
        return front, back

    def claiming(line: Line) -> Line:
        claimed = (claims.get(name, (name,)) for name in line.pools)
        return replace(line, pools=tuple(name for names in claimed for name in names))

    lines = tuple(map(claiming, front.lines))
    last = max((line.rank for line in lines), default=-1)
    behind = tuple(replace(line, rank=line.rank + last + 1) for line in back.lines)
    return replace(front, pools=tuple(pools), lines=lines), replace(back, lines=behind)


def _of(snapshot: Snapshot, runs: Set[RunId]) -> Iterator[JobView]:
    """The jobs of some task runs, with these alone."""
    for job in snapshot.jobs:
        if some := tuple(run for run in job.runs if run in runs):
            yield replace(job, runs=some)


def _own_pools(snapshot: Snapshot) -> Snapshot:
    """The front policy's view of its pools: with the names that it gave them."""

    def own(view: InstanceView) -> InstanceView:
        return replace(view, pool=view.pool.removeprefix(_FRONT))

    return replace(
        snapshot,
        instances=tuple(map(own, snapshot.instances)),
        draining=tuple(map(own, snapshot.draining)),
    )


def _listed(plan: Plan, snapshot: Snapshot) -> Plan:
    """A plan whose launches have the snapshot's limits, which each part saw lowered."""
    listed = {offering.id: offering for offering in snapshot.catalog}
    if all(launch.offering is listed[launch.offering.id] for launch in plan.launches):
        return plan
    launches = tuple(
        replace(launch, offering=listed[launch.offering.id]) for launch in plan.launches
    )
    return replace(plan, launches=launches)


def _named(plan: Plan) -> Plan:
    """The front policy's plan, with prefixed names of pools."""

    def renamed(line: Line) -> Line:
        return replace(line, pools=tuple(_FRONT + name for name in line.pools))

    pools: tuple[Pool, ...] = tuple(replace(pool, name=_FRONT + pool.name) for pool in plan.pools)
    if not pools and not plan.lines:
        return plan
    return replace(plan, pools=pools, lines=tuple(map(renamed, plan.lines)))
