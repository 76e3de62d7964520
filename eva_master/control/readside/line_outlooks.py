"""Outlooks of jobs in lines: the work before a job, and its latest first start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from eva_master.control.features.pools.admission import Bar, bar, gives_room
from eva_master.control.measure import remaining
from eva_master.control.rounds.moment import Recent
from eva_master.control.settings import Settings
from eva_master.control.standing.latest_start import Ahead, BoundMember, bound, slots_of
from eva_master.control.standing.membership import Statement
from eva_master.control.state.derived.task_counts import TaskCounts
from eva_master.control.state.records import Records
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.standing import Line, LinePlace, Pool
from eva_master.model.records import Instance, Job
from eva_master.ports.reading import LineOutlook
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import RunState


class LineRecords(Records, Protocol):
    """Records with the lines of each partition."""

    @property
    def counts(self) -> Mapping[JobId, TaskCounts]:
        """Counts of what all tasks of each job do."""
        ...

    @property
    def stated(self) -> Mapping[str, Statement]:
        """Pools and lines of each partition, as the last plans say."""
        ...

    @property
    def settings(self) -> Settings:
        """Settings of the control loop."""
        ...

    @property
    def recents(self) -> Mapping[str, Recent]:
        """State that the rounds of each partition leave to the next one."""
        ...

    def is_connected(self, instance: InstanceId) -> bool:
        """Whether an instance's worker has a session."""
        ...


class LineOutlooks:
    """The lines and pools of one partition, as of one moment.

    Args:
        records: The cluster.
        partition: The partition.
        now: The time.
    """

    def __init__(self, records: LineRecords, partition: Partition, now: Millis) -> None:
        self._records = records
        self._partition = partition
        self._counts = records.counts
        self._statement = records.stated[partition.name]
        self._held_back = records.recents.get(partition.name, Recent()).held_back
        self._now = now
        self._each: dict[JobId, int | None] = {}
        self._left: dict[InstanceId, tuple[int, ...] | None] = {}

    def of(self, job: Job, place: LinePlace) -> LineOutlook:
        """Work before the first waiting task of a job in a line."""
        line = place.line
        rivals = [
            other for other in self._statement.lines if other is not line and _share(other, line)
        ]
        before = self._before(job, place, rivals)
        tasks = sum(before.values())
        unknown = next((name for name in before if self._each_ms(name) is None), None)
        work = (
            None if unknown else sum(n * (self._each_ms(name) or 0) for name, n in before.items())
        )
        why = self._at_its_limit(job, line)
        if not why and unknown is not None:
            why = f"how long a task of {unknown} takes is not known, and it goes before"
        all_members = list(self._members(line))
        steady = [
            instance for instance in all_members if instance.offering.purchase is not Purchase.SPOT
        ]
        members = list(self._slots(job, line, steady))
        if not why:
            why = _no_slots(all_members, steady, members)
        known_members = [member for member in members if member is not None]
        if not why and not known_members:
            why = "how long the tasks take that run on its slots is not known"
        if why:
            return LineOutlook(tasks, work, no_bound=why)
        latest = bound(
            known_members, [Ahead(n, self._each_ms(name) or 0) for name, n in before.items()]
        )
        assert latest is not None, "there are slots"
        return LineOutlook(
            tasks,
            latest.work_ms,
            latest.slots,
            Millis(self._now + latest.wait_ms),
            others_first=not line.by_arrival
            or bool(rivals)
            or len(all_members) > len(steady)
            or self._differ(job, line),
        )

    def _before(self, job: Job, place: LinePlace, rivals: list[Line]) -> dict[JobId, int]:
        """Number of each job's waiting tasks that are offered room before, or maybe before."""
        line = place.line
        jobs = dict.fromkeys(line.jobs[: place.place])
        for rival in rivals:
            if rival.rank <= line.rank:
                jobs.update(dict.fromkeys(rival.jobs))
        waiting = {
            name: self._waiting(name) for name in jobs if name != job.id and self._stands(name)
        }
        return {name: count for name, count in waiting.items() if count}

    def _stands(self, job: JobId) -> bool:
        return job in self._records.active and job in self._statement.queued

    def _waiting(self, job: JobId) -> int:
        return self._counts[job].states.get(RunState.WAITING, 0)

    def _each_ms(self, job: JobId) -> int | None:
        if job not in self._each:
            self._each[job] = remaining.longest_ms(self._records, self._records.jobs[job])
        return self._each[job]

    def _at_its_limit(self, job: Job, line: Line) -> str:
        """Why none of its tasks may start even if there is room; empty if one may."""
        if job.suspension is not None:
            return "it is suspended"
        if job.missing_secrets:
            return "a secret that it uses is not set"
        most, cap = job.spec.array.concurrency, dict(line.at_most).get(job.id)
        counts = self._counts[job.id]
        barred = bar(
            self._records,
            self._records.settings,
            self._partition,
            job,
            self._now,
            placeable=self._waiting(job.id) if most is None else most - counts.in_hand,
            held_back=lambda: job.id in self._held_back,
        )
        if barred is Bar.NONE_LEFT and most is not None and counts.in_hand >= most:
            return f"as many of its tasks have a place as its job file allows at a time, {most}"
        if barred is not None:
            return barred.value
        if cap is not None and job.spec.size - self._waiting(job.id) >= cap:
            return f"the line admits no more than {cap} of its tasks"
        return ""

    def _differ(self, job: Job, line: Line) -> bool:
        """Whether others in the line may need less, and have room where its tasks do not."""
        demand = self._records.tasks.kinds(job.id)[0].demand
        stand = filter(self._stands, line.jobs)
        return any(
            kind.demand != demand for name in stand for kind in self._records.tasks.kinds(name)
        )

    def _members(self, line: Line) -> Iterator[Instance]:
        """The instances on which the line claims room that are its pools' own, and ready."""
        for pool in self._statement.pools:
            if pool.name in line.pools and not pool.shared:
                yield from filter(self._takes, self._claimed(pool, line))

    def _claimed(self, pool: Pool, line: Line) -> Iterator[Instance]:
        closed, only = set(pool.closed), set(line.only)
        for name in map(InstanceId, map(str, pool.members)):
            if name not in closed and (not only or name in only):
                instance = self._records.instances.get(name)
                if instance is not None:
                    yield instance

    def _takes(self, instance: Instance) -> bool:
        return gives_room(instance, connected=self._records.is_connected(instance.id))

    def _slots(self, job: Job, line: Line, steady: list[Instance]) -> Iterator[BoundMember | None]:
        """Slots and remaining tasks of each instance with slots; `None` without estimates."""
        records = self._records
        own = [dict(kind.demand) for kind in records.tasks.kinds(job.id)]
        stand = filter(self._stands, line.jobs)
        others = {kind.demand for name in stand for kind in records.tasks.kinds(name)}
        for instance in steady:
            kind, runs = instance.offering.type, records.occupants(instance.id)
            demands = dict.fromkeys((*others, *(records.task(run).demand for run in runs)))
            slots = slots_of(kind.capacity, kind.family, own, map(dict, demands))
            if slots:
                remaining_ms = self._left_on(instance.id)
                yield None if remaining_ms is None else BoundMember(slots, remaining_ms)

    def _left_on(self, name: InstanceId) -> tuple[int, ...] | None:
        """Remaining times of the tasks on an instance; `None` if that of one is unknown."""
        if name not in self._left:
            runs = self._records.occupants(name)
            times = [remaining.left_ms(self._records, run, self._now) for run in runs]
            known_times = tuple(time_ms for time_ms in times if time_ms is not None)
            self._left[name] = known_times if len(known_times) == len(times) else None
        return self._left[name]


def _share(one: Line, other: Line) -> bool:
    """Whether two lines may claim the same room."""
    apart = one.only and other.only and not set(one.only) & set(other.only)
    return not apart and bool(set(one.pools) & set(other.pools))


def _no_slots(
    there: list[Instance], steady: list[Instance], members: list[BoundMember | None]
) -> str:
    """Why no slot is sure; empty if there are some."""
    if members:
        return ""
    if steady:
        return "no instance on demand in its pools holds its tasks"
    if there:
        return "only spot instances are ready in its pools, and the cloud may take them back"
    return "no instance of its pools is ready"
