"""Who runs on each instance, in groups of those that are alike, and how fast they were there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from eva_master.model.ids import MILLION, InstanceId, JobId, RunId
from eva_master.model.job import TaskSpec
from eva_master.model.planning.estimate import LONGEST_MS
from eva_master.model.records import Instance, TaskRun
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.states import RunState

_RUNNING = RunState.RUNNING
_Key = tuple[InstanceId, JobId, int, float, bool]


class _Group:
    """Task runs of one job that run on one instance at one measured rate, of equal tasks.

    Extra runs of tasks are in groups of their own.

    Attributes:
        key: What they have in common.
        members: Those that are in it now.
        elapsed_ms: For how long it was booked.
        worked: What each of its members did in that time, in millionths of milliseconds.
    """

    __slots__ = ("elapsed_ms", "key", "members", "worked")

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.members: dict[RunId, None] = {}
        self.elapsed_ms = self.worked = 0


class Company:
    """Follows the task runs that run, so that a booking costs as much as there are groups.

    How fast task runs were is not journalled: after a restart the rest of a task run speaks for
    all of it.

    Args:
        touched: The records of task runs.
        occupants: Those that take room on each instance.
        instances: The records of instances.
        task: Tells the task of a task run.

    Attributes:
        rated: Those that take room and of which a rate was measured.
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
        """The group of each, and what that had been booked when it came."""
        self._sums: dict[RunId, tuple[int, int]] = {}
        """What each did in the groups that it has left."""
        self._jobs: dict[InstanceId, dict[JobId, int]] = {}
        """How many task runs of each job take room on each instance."""
        self._extras: dict[InstanceId, int] = {}
        """How many extra runs of tasks take room on each instance that has any."""
        self._taken: dict[InstanceId, Resources] = {}
        """What is taken of instances of which that was asked, until they are empty."""

    # -- following -------------------------------------------------------------------------------

    def follow(self, run: TaskRun, task: TaskSpec) -> None:
        """A task run was replaced, whose task is the one that its job keeps."""
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
        there = self._groups.setdefault(place, {})
        group = there.get(key)
        if group is None:
            group = there[key] = _Group(key)
        group.members[run.id] = None
        self._joined[run.id] = group, group.elapsed_ms, group.worked

    def _leave(self, run: RunId, joined: tuple[_Group, int, int]) -> None:
        group = joined[0]
        if group.elapsed_ms > joined[1]:
            self._sums[run] = self._sum(run)
        del self._joined[run]
        del group.members[run]
        if not group.members:
            there = self._groups[group.key[0]]
            del there[group.key]
            if not there:
                del self._groups[group.key[0]]

    def moved(self, place: InstanceId | None, new: TaskRun, task: TaskSpec) -> None:
        """A task run has left an instance, or takes room on another."""
        if new.extra:
            self._count_extra(place, -1)
            self._count_extra(new.instance, 1)
        if place is not None:
            there = self._jobs[place]
            there[new.job] -= 1
            if not there[new.job]:
                del there[new.job]
            if not there:
                del self._jobs[place]
                self._taken.pop(place, None)
            elif place in self._taken:
                self._taken[place] = self._taken[place] - self._need(task, place)
        if (place := new.instance) is not None:
            there = self._jobs.setdefault(place, {})
            there[new.job] = there.get(new.job, 0) + 1
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
        """See `Records.jobs_on`."""
        found = self._jobs.get(instance, {})
        if len(found) < 2:
            return found
        return dict.fromkeys(self._touched[it].job for it in self._occupants[instance])

    def has_extras(self, instance: InstanceId) -> bool:
        """See `Records.has_extras`."""
        return instance in self._extras

    def groups(self, instance: InstanceId) -> list[tuple[TaskRun, int]]:
        """See `Records.groups`."""
        groups = self._groups.get(instance)
        if groups is None:
            return []
        touched = self._touched
        return [(touched[next(iter(it.members))], len(it.members)) for it in groups.values()]

    def taken(self, instance: InstanceId) -> Resources:
        """What task runs take of an instance."""
        known = self._taken.get(instance)
        if known is None:
            known = NOTHING
            for run in self._occupants.get(instance, ()):
                known = known + self._need(self._task(self._touched[run]), instance)
            if instance in self._jobs:
                self._taken[instance] = known
        return known

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
