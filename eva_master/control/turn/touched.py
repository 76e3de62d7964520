"""The jobs, task runs and instances that a turn looks at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from eva_master.model.records import TaskRun
from eva_wire.values.ids import InstanceId, JobId, RunId


class Touched:
    """The jobs, task runs and instances that are looked at in a turn.

    Attributes:
        jobs: Jobs to converge; of a gang its touched members, if it was not touched as a whole.
        runs: Tasks of arrays to converge.
        instances: Instances to converge.
        resync: Whether everything is looked at.
    """

    def __init__(self) -> None:
        # A dict whose first items are taken one by one searches past all that were there before.
        self.jobs = OrderedDict[JobId, dict[RunId, None] | None]()
        self.runs, self.instances = OrderedDict[RunId, None](), OrderedDict[InstanceId, None]()
        self._places = set[InstanceId]()
        self.resync = False

    def begin(self) -> None:
        """Begin a turn: no task run of the last one is left to converge."""
        self._places.clear()

    def job(self, job: JobId) -> None:
        """Have a job converged, with all of its tasks."""
        self.jobs[job] = None

    def member(self, run: TaskRun) -> None:
        """Have a member of a gang converged, with its gang."""
        members = self.jobs.setdefault(run.job, {})
        if members is not None:
            members[run.id] = None

    def run(self, run: RunId) -> None:
        """Have a task of an array converged by itself."""
        self.runs[run] = None

    def instance(self, instance: InstanceId) -> None:
        """Have an instance converged by itself."""
        self.instances[instance] = None

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

    def take_job(self) -> tuple[JobId, Collection[RunId] | None]:
        """Take the first of the jobs."""
        self._places.clear()
        return self.jobs.popitem(last=False)

    def take_run(self) -> RunId:
        """Take the first of the tasks."""
        self._places.clear()
        return self.runs.popitem(last=False)[0]

    def take_instance(self) -> InstanceId:
        """Take the first of the instances."""
        return self.instances.popitem(last=False)[0]
