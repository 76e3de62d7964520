"""The jobs, task runs and instances that a turn looks at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import TypeVar

from eva_master.model.records import TaskRun
from eva_wire.values.ids import InstanceId, JobId, RunId

_Name = TypeVar("_Name", JobId, RunId, InstanceId)


class Touched:
    """The jobs, task runs and instances that are looked at in a turn.

    Attributes:
        resync: Whether everything is looked at.
    """

    def __init__(self) -> None:
        # Touched members of gangs that were not touched as a whole.
        # A dict whose first items are taken one by one searches past all that were there before.
        self._jobs = OrderedDict[JobId, dict[RunId, None] | None]()
        self._runs, self._instances = OrderedDict[RunId, None](), OrderedDict[InstanceId, None]()
        self._places = set[InstanceId]()
        self.resync = False

    def job(self, job: JobId) -> None:
        """Have a job converged, with all of its tasks."""
        self._jobs[job] = None

    def member(self, run: TaskRun) -> None:
        """Have a member of a gang converged, with its gang."""
        members = self._jobs.setdefault(run.job, {})
        if members is not None:
            members[run.id] = None

    def run(self, run: RunId) -> None:
        """Have a task of an array converged by itself."""
        self._runs[run] = None

    def instance(self, instance: InstanceId) -> None:
        """Have an instance converged by itself."""
        self._instances[instance] = None

    def place(self, instance: InstanceId) -> bool:
        """Whether the task runs that come to an instance have to be touched.

        Once they were, each that comes later is touched for that. So it is asked once until
        something is taken, be it for all members of a large gang.
        """
        fresh = instance not in self._places
        self._places.add(instance)
        return fresh

    def take_resync(self) -> bool:
        """Whether everything is to be looked at in this turn."""
        due, self.resync = self.resync, False
        return due

    def take_job(self) -> tuple[JobId, Collection[RunId] | None] | None:
        """Take a job to converge, `None` if there is none left.

        Returns:
            The job, and the members of a gang that were touched if it was not touched as a whole.
        """
        self._places.clear()
        return self._jobs.popitem(last=False) if self._jobs else None

    def take_run(self) -> RunId | None:
        """Take a task of an array to converge, `None` if there is none left."""
        self._places.clear()
        return _take(self._runs)

    def take_instance(self) -> InstanceId | None:
        """Take an instance to converge, `None` if there is none left."""
        return _take(self._instances)


def _take(waiting: OrderedDict[_Name, None]) -> _Name | None:
    return waiting.popitem(last=False)[0] if waiting else None
