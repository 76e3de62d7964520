"""The earliest end of a job that is submitted now: a bound that no run of it can undercut.

A deadline is refused by this bound, so each part of it errs on the early side: the fastest type,
the shortest boot, all room of the cluster, and predecessors that begin at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eva_master.control.features.deadlines.room import PartitionRoom
from eva_master.control.features.deadlines.slack import in_work
from eva_master.control.measure import remaining, sizes
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords
from eva_master.model.catalog import Offering
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.elastic import Elastic, Scaling
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.snapshot import RemainingWork
from eva_master.model.records import Job
from eva_master.model.values import replace
from eva_master.packing.valuation import delays
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, JobId, Millis
from eva_wire.values.states import TERMINAL_JOB, JobState

_MOST_PREDECESSORS = 1_000
"""So many jobs before a job are looked at; the others count as ended."""
_LEAST_START_MS = 1_000
"""No start is assumed to take less of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Earliest:
    """Lower bound of the time until a job ends.

    Attributes:
        ms: The bound, from now on.
        after: The predecessor that ends last; empty if there is none, or none takes known time.
        after_ms: How long that one still takes at least.
        at_once: How many tasks of an array run at a time, if all do not; else 0.
    """

    ms: int
    after: str = ""
    after_ms: int = 0
    at_once: int = 0


@dataclass(frozen=True, slots=True)
class _Work:
    """Work that a job still has to do at least.

    Attributes:
        ms: From its first start to its end.
        area_ms: Sum over its tasks; 0 where members of a gang speed each other up.
        tasks: One of each kind.
        at_once: As of `Earliest`.
    """

    ms: int
    area_ms: int
    tasks: tuple[TaskSpec, ...]
    at_once: int = 0


def earliest(state: PlanningRecords, spec: JobSpec, now: Millis, settings: Settings) -> Earliest:
    """The earliest end of a job that is submitted now.

    Args:
        state: The records.
        spec: The job, with the partition in which it runs.
        now: The time.
        settings: With the limits.
    """
    bound = _Bound(state, settings, now)
    own = bound.of_spec(spec)
    succeed = [name for name in spec.stage.depends_on if name not in spec.stage.only_ended]
    before = bound.ends_of(succeed)
    after, after_ms = max(before.items(), key=lambda it: it[1], default=("", 0))
    begins_ms = after_ms if after_ms else bound.begins_ms(spec, own.tasks)
    ms = begins_ms + bound.launch_ms(spec, own.tasks) + own.ms
    together_ms = bound.together_ms(spec, own)
    if together_ms > ms:
        return Earliest(together_ms, after, after_ms, own.at_once)
    return Earliest(ms, after if after_ms else "", after_ms, own.at_once)


class _Bound:
    """Bounds of jobs, each worked out once."""

    def __init__(self, state: PlanningRecords, settings: Settings, now: Millis) -> None:
        self._state = state
        self._settings = settings
        self._now = now
        self._ends: dict[JobId, int] = {}
        self._works: dict[JobId, _Work] = {}

    # -- jobs that are there ----------------------------------------------------------------------

    def ends_of(self, names: Iterable[JobId]) -> dict[JobId, int]:
        """Milliseconds until jobs end at the earliest, their own predecessors included."""
        asked = list(names)
        stack = list(asked)
        seen = set(asked)
        while stack:
            name = stack[-1]
            job = self._state.jobs.get(name)
            if name in self._ends or job is None:
                stack.pop()
                continue
            missing = [
                predecessor for predecessor in _waited_for(job) if self._is_open(predecessor)
            ]
            if missing and len(seen) < _MOST_PREDECESSORS:
                seen.update(missing)
                stack.extend(missing)
                continue
            stack.pop()
            self._ends[name] = self._end_ms(job)
        return {name: self._ends.get(name, 0) for name in asked}

    def _is_open(self, name: JobId) -> bool:
        return name in self._state.jobs and name not in self._ends

    def _end_ms(self, job: Job) -> int:
        if job.state in TERMINAL_JOB or job.state is JobState.ENDING:
            return 0
        work = self._works[job.id] = self._left(job)
        before_ms = max(
            (self._ends.get(predecessor, 0) for predecessor in _waited_for(job)), default=0
        )
        own_ms = work.ms
        if job.spec.failing.max_duration_ms is not None:
            own_ms = min(own_ms, max(0, job.spec.failing.max_duration_ms - job.ran_ms(self._now)))
        if before_ms or job.started_ms is not None:
            return before_ms + own_ms
        return self.begins_ms(job.spec, work.tasks) + own_ms

    def _left(self, job: Job) -> _Work:
        """Remaining work of a job."""
        state, spec = self._state, job.spec
        kinds = state.tasks.kinds(job.id)
        runs = in_work(state, job)
        remaining_of = remaining.of_job(state, job, runs)
        here = [
            _least_ms(remaining_of.works.get(run.id), remaining_of.estimate, self._now)
            for run in runs
        ]
        room = self._room(spec, job.partition)
        if job.is_gang or spec.forked:
            return self._of_gang(spec, kinds, max(here, default=0), room)
        rest = spec.size - state.tasks.succeeded(job.id) - state.tasks.failed(job.id) - len(runs)
        lengths = Counter(here)
        if rest > 0:
            alike = self._lengths(spec.of_tasks(kinds), Counter(range(len(kinds))))
            lengths[min(alike)] += rest
        return self._of_array(spec, kinds, lengths, room, speed=self._speed(spec, kinds, room))

    # -- a job that is not there yet ---------------------------------------------------------------

    def of_spec(self, spec: JobSpec) -> _Work:
        """Work of a job that is submitted now."""
        kinds, counts = _kinds(spec)
        room = self._room(spec, spec.partition)
        if spec.retry is not None and spec.retry.origins:
            return _Work(0, 0, kinds)  # The content of its checkpoints is unknown.
        if spec.kind is JobKind.GANG or spec.forked:
            remaining_of = remaining.of_spec(self._state, spec, self._now)
            ms = max(
                _least_ms(work, remaining_of.estimate, self._now)
                for work in remaining_of.works.values()
            )
            return self._of_gang(spec, kinds, ms, room)
        of_kinds = spec.of_tasks(kinds)
        lengths = self._lengths(of_kinds, counts)
        speed = self._speed(spec, kinds, room)
        whole = self._of_array(spec, kinds, lengths, room, speed=speed)
        slowest = [
            self._alike_ms(spec, of_kinds.of_tasks((kind,)), counts[number], room)
            for number, kind in enumerate(kinds if len(kinds) > 1 else ())
        ]
        return replace(whole, ms=max([whole.ms, *slowest]))

    def _alike_ms(self, spec: JobSpec, alike: JobSpec, count: int, room: PartitionRoom) -> int:
        """How long the tasks of one kind take, if nothing else is there."""
        lengths = self._lengths(alike, Counter({0: count}))
        speed = self._speed(spec, alike.tasks, room)
        return self._of_array(spec, alike.tasks, lengths, room, speed=speed).ms

    def _lengths(self, spec: JobSpec, counts: Counter[int]) -> Counter[int]:
        """Standalone times of the tasks of an array, with the number of such tasks."""
        remaining_of = remaining.of_spec(self._state, spec, self._now)
        lengths: Counter[int] = Counter()
        for number, work in enumerate(remaining_of.works.values()):
            lengths[_least_ms(work, remaining_of.estimate, self._now)] += counts[number]
        return lengths

    # -- work --------------------------------------------------------------------------------------

    def _of_gang(
        self, spec: JobSpec, kinds: tuple[TaskSpec, ...], alone_ms: int, room: PartitionRoom
    ) -> _Work:
        """Work of a gang, or a job with forks, that would take so long with one member."""
        speed = self._speed(spec, kinds, room)
        if spec.forked:
            speed *= max(1, room.at_once(kinds, spec.forking.forks))
        elastic = sizes.elastic(self._state, spec, self._settings.limits, room.home)
        if elastic is not None:
            most = max(elastic.least, room.at_once(kinds, elastic.most))
            speed *= Fraction(_fastest_ppm(elastic, most), MILLION)
        ms = int(alone_ms / speed)
        several = spec.forked or elastic is not None
        return _Work(ms, 0 if several else ms * len(spec.tasks), kinds)

    def _of_array(
        self,
        spec: JobSpec,
        kinds: tuple[TaskSpec, ...],
        lengths: Counter[int],
        room: PartitionRoom,
        *,
        speed: Fraction,
    ) -> _Work:
        """Work of an array of tasks that take so long alone."""
        count = lengths.total()
        at_once = max(1, room.at_once(kinds, min(count, spec.array.concurrency or count)))
        area_ms = sum(ms * many for ms, many in lengths.items())
        bounds = (max(lengths, default=0), area_ms // at_once, _in_turn_ms(lengths, at_once))
        fewer = at_once if at_once < count else 0
        return _Work(int(max(bounds) / speed), int(area_ms / speed), kinds, fewer)

    def _speed(self, spec: JobSpec, kinds: tuple[TaskSpec, ...], room: PartitionRoom) -> Fraction:
        """Best speed of tasks against the family of their stated duration."""
        reserved = self._state.prices.of(spec.of_tasks(kinds))
        speeds = [
            reservation.speed_on(offering.type.family)
            for task, reservation in zip(kinds, reserved, strict=True)
            for offering in room.offerings((task,))
        ]
        return max((speed for speed in speeds if speed > 0), default=Fraction(1))

    def _room(self, spec: JobSpec, partition: str) -> PartitionRoom:
        return PartitionRoom(self._state, self._settings, spec, partition)

    # -- delays ------------------------------------------------------------------------------------

    def begins_ms(self, spec: JobSpec, kinds: Sequence[TaskSpec]) -> int:
        """How long it takes until there is an instance for a first task, of a gang for all."""
        room = self._room(spec, spec.partition)
        boots = [self._boot_ms(kind, room) for kind in kinds]
        return max(boots) if spec.kind is JobKind.GANG else min(boots)

    def _boot_ms(self, task: TaskSpec, room: PartitionRoom) -> int:
        if room.is_there(task):
            return 0
        return min(map(self._boots_ms, room.offerings((task,))), default=0)

    def _boots_ms(self, offering: Offering) -> int:
        return delays.booting(self._state.learned.delays, offering.type).boot_ms

    def launch_ms(self, spec: JobSpec, kinds: Sequence[TaskSpec]) -> int:
        """Duration of a start, as stated or measured, or else at least."""
        least = min(self._settings.launch_ms, _LEAST_START_MS)
        shorter = replace(self._settings.assumed_delays, launch_ms=least)
        each = [
            delays.of_job(self._state.learned, spec, (kind,), shorter).launch_ms for kind in kinds
        ]
        return max(each) if spec.kind is JobKind.GANG else min(each)

    def together_ms(self, spec: JobSpec, own: _Work) -> int:
        """How long a job and its predecessors take in the room that all of them have."""
        home = self._settings.partitions.home(spec.partition)
        works = [own]
        for name, work in self._works.items():
            job = self._state.jobs[name]
            if job.spec.failing.max_duration_ms is None and (
                self._settings.partitions.home(job.partition) is home
            ):
                works.append(work)
        if len(works) == 1:
            return 0
        tasks = tuple({id(task): task for work in works for task in work.tasks}.values())
        # Tenants and users differ, so room is that of whoever has no quota.
        room = PartitionRoom(self._state, self._settings, None, spec.partition)
        at_once = room.at_once(tasks, _MANY)
        return sum(work.area_ms for work in works) // max(1, at_once)


_MANY = 10**9
"""Tasks at a time where nothing limits them."""


def _waited_for(job: Job) -> Collection[JobId]:
    """Jobs that have to succeed before a job arrives."""
    if not job.waits:
        return ()
    return [name for name in job.spec.stage.depends_on if name not in job.spec.stage.only_ended]


def _kinds(spec: JobSpec) -> tuple[tuple[TaskSpec, ...], Counter[int]]:
    """The distinct tasks of a job, and the number of each, by its place."""
    counts = Counter(id(spec.tasks[index]) for index in spec.indices)
    kinds = {id(spec.tasks[index]): spec.tasks[index] for index in spec.indices}
    return tuple(kinds.values()), Counter(dict(enumerate(counts[kind] for kind in kinds)))


def _least_ms(work: RemainingWork | None, estimate: Estimate | None, now: Millis) -> int:
    """Standalone time that is left at least; 0 if nothing is known."""
    if work is None:
        return 0
    left_ms = work.standalone_ms(now)
    if not work.estimated:
        return left_ms
    doubt_ms = 0 if estimate is None else estimate.mean_ms - estimate.least_ms
    return max(0, left_ms - max(0, doubt_ms))


def _in_turn_ms(lengths: Counter[int], at_once: int) -> int:
    """How long the shortest tasks take of which some instance has that many, one after another."""
    turns = -(-lengths.total() // at_once)
    total = 0
    for ms in sorted(lengths):
        number = min(turns, lengths[ms])
        total, turns = total + number * ms, turns - number
    return total


def _fastest_ppm(elastic: Elastic, most: int) -> int:
    """How fast an elastic gang is at best against one member, in millionths."""
    return max(
        speed
        for scaling in (elastic.together, elastic.apart)
        for speed in _speeds_ppm(scaling, elastic.least, most)
    )


def _speeds_ppm(scaling: Scaling, least: int, most: int) -> Iterator[int]:
    """Speed with each number of members; beyond the known ones, at best."""
    measured = [number for number, _ in scaling.known]
    for members in range(least, most + 1):
        speed = scaling.speed_ppm(members)
        if members not in measured:
            below = max((number for number in measured if number < members), default=1)
            speed = max(speed, scaling.speed_ppm(below) * members // below)
        yield speed
