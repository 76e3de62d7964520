"""Groups of equal task runs on each instance, and their measured rates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from eva_master.model.job import TaskSpec
from eva_master.model.planning.estimate import LONGEST_MS
from eva_master.model.records import Instance, TaskRun
from eva_master.model.resources import NOTHING, Resources
from eva_wire.values.ids import MILLION, InstanceId, JobId, RunId
from eva_wire.values.states import RunState

_RUNNING = RunState.RUNNING
_Key = tuple[InstanceId, JobId, int, float, bool]


class _Group:
    """Task runs of one job that run on one instance at one measured rate, of equal tasks.

    Extra runs of tasks are in groups of their own.

    Attributes:
        key: Properties that the members have in common.
        members: The present members.
        elapsed_ms: Booked time of the group.
        worked: Work of each of its members in that time, in millionths of milliseconds.
    """

    __slots__ = ("elapsed_ms", "key", "members", "worked")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.members: dict[RunId, None] = {}
        self.elapsed_ms = self.worked = 0


class Company:
    """Groups of running task runs, so that a booking costs time in proportion to the groups.

    Rates of task runs are not journalled: after a restart, the rest of a task run stands for all of
    it.

    Args:
        touched: The records of task runs.
        occupants: The task runs that take room on each instance.
        instances: The records of instances.
        task: Returns the task of a task run.

    Attributes:
        rated: Task runs that take room and have a measured rate.
    """

    def __init__(
        self,
        touched: Mapping[RunId, TaskRun],
        occupants: Mapping[InstanceId, Mapping[RunId, None]],
        instances: Mapping[InstanceId, Instance],
        task: Callable[[TaskRun], TaskSpec],
    ) -> None:
        self._touched = touched
        self._occupants = occupants
        self._instances = instances
        self._task = task
        self.rated: set[RunId] = set()
        self._groups: dict[InstanceId, dict[_Key, _Group]] = {}
        self._joined: dict[RunId, tuple[_Group, int, int]] = {}
        """The group of each task run, with the group's booked time and work when the run joined."""
        self._sums: dict[RunId, tuple[int, int]] = {}
        """Time and work of each task run in the groups that it has left."""
        self._jobs: dict[InstanceId, dict[JobId, int]] = {}
        """Number of each job's task runs that take room on each instance."""
        self._extras: dict[InstanceId, int] = {}
        """Number of extra runs that take room on each instance with any."""
        self._taken: dict[InstanceId, Resources] = {}
        """Taken resources of instances for which they were requested, until the instances are
        empty.
        """

    # -- following -------------------------------------------------------------------------------

    def follow(self, run: TaskRun, task: TaskSpec) -> None:
        """Follow the new record of a task run; `task` is the object that its job keeps."""
        rate, place = run.progress.rate, run.instance
        if rate and place is not None:
            self.rated.add(run.id)
        else:
            self.rated.discard(run.id)
        joined = self._joined.get(run.id)
        if place is None or run.state is not _RUNNING:
            if joined is not None:
                self._leave(run.id, joined)
            return
        key = place, run.job, id(task), rate, run.extra
        if joined is not None:
            if joined[0].key == key:
                return
            self._leave(run.id, joined)
        groups = self._groups.setdefault(place, {})
        group = groups.get(key)
        if group is None:
            group = groups[key] = _Group(key)
        group.members[run.id] = None
        self._joined[run.id] = group, group.elapsed_ms, group.worked

    def _leave(self, run: RunId, joined: tuple[_Group, int, int]) -> None:
        group = joined[0]
        if group.elapsed_ms > joined[1]:
            self._sums[run] = self._sum(run)
        del self._joined[run]
        del group.members[run]
        if not group.members:
            groups = self._groups[group.key[0]]
            del groups[group.key]
            if not groups:
                del self._groups[group.key[0]]

    def moved(self, place: InstanceId | None, new: TaskRun, task: TaskSpec) -> None:
        """Note that a task run has left an instance, or takes room on another."""
        if new.extra:
            self._count_extra(place, -1)
            self._count_extra(new.instance, 1)
        if place is not None:
            counts = self._jobs[place]
            counts[new.job] -= 1
            if not counts[new.job]:
                del counts[new.job]
            if not counts:
                del self._jobs[place]
                self._taken.pop(place, None)
            elif place in self._taken:
                self._taken[place] = self._taken[place] - self._need(task, place)
        if (place := new.instance) is not None:
            counts = self._jobs.setdefault(place, {})
            counts[new.job] = counts.get(new.job, 0) + 1
            if place in self._taken:
                self._taken[place] = self._taken[place] + self._need(task, place)

    def _count_extra(self, place: InstanceId | None, change: int) -> None:
        if place is not None:
            count = self._extras.pop(place, 0) + change
            if count:
                self._extras[place] = count

    def _need(self, task: TaskSpec, place: InstanceId) -> Resources:
        need = task.demand_on(self._instances[place].offering.type.family)
        assert need is not None, f"a task of {task.workload} cannot run on {place}"
        return need

    # -- looking up ------------------------------------------------------------------------------

    def jobs_on(self, instance: InstanceId) -> Collection[JobId]:
        """Jobs of an instance's task runs, see `CompanyRecords.jobs_on`."""
        jobs = self._jobs.get(instance, {})
        if len(jobs) < 2:
            return jobs
        return dict.fromkeys(self._touched[run].job for run in self._occupants[instance])

    def has_extras(self, instance: InstanceId) -> bool:
        """Whether extra runs are there, see `CompanyRecords.has_extras`."""
        return instance in self._extras

    def groups(self, instance: InstanceId) -> list[tuple[TaskRun, int]]:
        """Running task runs by likeness, see `CompanyRecords.groups`."""
        groups = self._groups.get(instance)
        if groups is None:
            return []
        touched = self._touched
        return [
            (touched[next(iter(group.members))], len(group.members)) for group in groups.values()
        ]

    def taken(self, instance: InstanceId) -> Resources:
        """Resources of an instance that task runs take."""
        taken = self._taken.get(instance)
        if taken is None:
            taken = NOTHING
            for run in self._occupants.get(instance, ()):
                taken = taken + self._need(self._task(self._touched[run]), instance)
            if instance in self._jobs:
                self._taken[instance] = taken
        return taken

    def runs_on(self, run: RunId, instance: InstanceId) -> bool:
        """Whether a task run runs on an instance."""
        joined = self._joined.get(run)
        return joined is not None and joined[0].key[0] == instance

    # -- pace ------------------------------------------------------------------------------------

    def add(self, run: RunId, elapsed_ms: int, ppm: int) -> None:
        """Take in a stretch of time in which a task run's group ran at one measured pace."""
        group = self._joined[run][0]
        group.elapsed_ms += elapsed_ms
        group.worked += elapsed_ms * ppm

    def ppm(self, run: RunId) -> int | None:
        """How fast a task run was on average, by measurements of its company, in millionths.

        `None` if it was not booked yet.
        """
        elapsed, worked = self._sum(run)
        return worked // elapsed if elapsed else None

    def took(self, run: RunId, work_ms: int) -> int:
        """Take the time that a task run would have needed alone, from 1 ms to ten years.

        Company that nobody measured is not deducted.

        Args:
            run: The task run.
            work_ms: Standalone time for which it ran, company left aside.
        """
        elapsed, worked = self._sum(run)
        self.forget(run)
        took = work_ms * worked // (elapsed * MILLION) if elapsed > 0 else work_ms
        return min(max(1, took), LONGEST_MS)

    def forget(self, run: RunId) -> None:
        """Forget how fast a task run was, which begins anew or is over."""
        self._sums.pop(run, None)
        if (joined := self._joined.get(run)) is not None:
            group = joined[0]
            self._joined[run] = group, group.elapsed_ms, group.worked

    def _sum(self, run: RunId) -> tuple[int, int]:
        elapsed, worked = self._sums.get(run, (0, 0))
        joined = self._joined.get(run)
        if joined is None:
            return elapsed, worked
        group, since, done = joined
        return elapsed + group.elapsed_ms - since, worked + group.worked - done
