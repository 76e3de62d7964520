"""Views of jobs, task runs and instances, kept from snapshot to snapshot until they change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Generic, TypeVar

from eva_master.model.catalog import Catalog, InstanceType
from eva_master.model.ids import InstanceId, JobId, RunId
from eva_master.model.planning.snapshot import InstanceView, JobView, RunView

K = TypeVar("K", bound=str)
V = TypeVar("V")

_RUNS_DOWN = frozenset({"remaining"})


class SortedValues(Generic[K, V]):
    """Values in the order of their keys; the tuple of them is made anew only after a change."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._keys: list[K] = []
        self._added: list[K] = []
        self._dropped: set[K] = set()
        self._ordered: tuple[V, ...] | None = ()

    def get(self, key: K) -> V | None:
        """The value of a key, `None` if it has none."""
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Add or replace a value."""
        if key not in self._values:
            self._added.append(key)
        self._values[key] = value
        self._ordered = None

    def drop(self, key: K) -> None:
        """Remove a value that is there."""
        del self._values[key]
        self._dropped.add(key)
        self._ordered = None

    def ordered(self) -> tuple[V, ...]:
        """All values, sorted by their keys."""
        if self._ordered is None:
            if self._dropped:
                for key in self._dropped:
                    at = bisect_left(self._keys, key)
                    if at < len(self._keys) and self._keys[at] == key:
                        del self._keys[at]
                # What was dropped and added again must not be there twice.
                self._added = list({key for key in self._added if key in self._values})
                self._dropped = set()
            if self._added:
                self._keys.extend(self._added)
                self._keys.sort()  # quick, as it is nearly sorted
                self._added = []
            self._ordered = tuple(map(self._values.__getitem__, self._keys))
        return self._ordered


class ViewCache:
    """What `planning.snapshot_builder` has made, and what of it may no longer be true.

    Attributes:
        jobs: Views by job.
        runs: Views by task run.
        instances: Views by instance.
        catalog: With learned delays in place of assumed ones.
        measured: The types whose delays were learned, by name.
        basis: What was last seen of all that is no job, task run or instance.
        sources: What `catalog` and `measured` were made of.
        made: How many views were made, ever.
        revision: Grows with every change that a policy can see, the passing of time apart.
    """

    def __init__(self) -> None:
        self.jobs: SortedValues[JobId, JobView] = SortedValues()
        self.runs: SortedValues[RunId, RunView] = SortedValues()
        self.instances: SortedValues[InstanceId, InstanceView] = SortedValues()
        self.catalog: Catalog = ()
        self.measured: dict[str, InstanceType] = {}
        self.basis: tuple[object, ...] = ()
        self.sources: tuple[object, ...] = ()
        self.made = 0
        self.revision = 0
        self._residents: dict[InstanceId, set[RunId]] = {}
        self._by_workload: dict[str, dict[RunId, None]] = {}
        self._jobs: dict[JobId, None] = {}
        self._instances: dict[InstanceId, None] = {}

    # -- going out of date -----------------------------------------------------------------------

    def job_changed(self, job: JobId) -> None:
        """The view of a job, or of its task runs, may no longer be true."""
        self._jobs[job] = None

    def instance_changed(self, instance: InstanceId) -> None:
        """The view of an instance may no longer be true."""
        self._instances[instance] = None

    def workload_changed(self, workload: str) -> None:
        """The same of all jobs with a task of this workload."""
        for run in self._by_workload.get(workload, ()):
            self._outdate(run)

    def usual_changed(self, workload: str) -> None:
        """The same of those of them that wait, and of which no more is known than that.

        What was told of one that runs stands: what others took is no news of its own progress.
        """
        for run in self._by_workload.get(workload, ()):
            view = self.runs.get(run)
            if view is None or view.running:
                continue
            if view.remaining is None or view.remaining.estimated:
                self._jobs[view.job] = None

    def rates_changed(self) -> None:
        """The same of all jobs of which it is known how long they take."""
        for view in self.runs.ordered():
            if view.remaining is not None:
                self._jobs[view.job] = None

    def _outdate(self, run: RunId) -> None:
        view = self.runs.get(run)
        if view is not None:
            self._jobs[view.job] = None

    def instances_changed(self) -> None:
        """The same of all instances."""
        for view in self.instances.ordered():
            self._instances[view.id] = None

    def outdated_jobs(self) -> list[JobId]:
        """Take the jobs whose views have to be made anew."""
        taken, self._jobs = list(self._jobs), {}
        return taken

    def outdated_instances(self) -> list[InstanceId]:
        """Take the instances whose views have to be made anew."""
        taken, self._instances = list(self._instances), {}
        return taken

    # -- coming up to date -----------------------------------------------------------------------

    def put_job(self, job: JobId, view: JobView | None, runs: Sequence[RunView]) -> None:
        """Replace the views of a job and of its task runs; `None` if it is not to be seen."""
        self.made += len(runs) + (view is not None)
        old = self.jobs.get(job)
        seen = {run.id: run for run in runs}
        if view != old:
            self.revision += 1
            if view is None:
                self.jobs.drop(job)
            else:
                self.jobs.put(job, view)
        for id_ in () if old is None else old.runs:
            if id_ not in seen:
                self._put_run(id_, None)
        for run in runs:
            self._put_run(run.id, run)

    def _put_run(self, id_: RunId, view: RunView | None) -> None:
        old = self.runs.get(id_)
        if view == old:
            return
        self.revision += view is None or old is None or _lasting(view) != _lasting(old)
        before = None if old is None else old.instance
        after = None if view is None else view.instance
        if old is not None and (view is None or view.task is not old.task):
            self._by_workload[old.task.workload].pop(id_, None)
            if not self._by_workload[old.task.workload]:
                del self._by_workload[old.task.workload]
        if view is None:
            self.runs.drop(id_)
        else:
            self.runs.put(id_, view)
            self._by_workload.setdefault(view.task.workload, {})[id_] = None
        if before != after:
            if before is not None:
                self._residents[before].discard(id_)
                if not self._residents[before]:
                    del self._residents[before]
                self._instances[before] = None
            if after is not None:
                self._residents.setdefault(after, set()).add(id_)
                self._instances[after] = None

    def put_instance(self, instance: InstanceId, view: InstanceView | None) -> None:
        """Replace the view of an instance; `None` if it is not to be seen."""
        self.made += view is not None
        if view == self.instances.get(instance):
            return
        self.revision += 1
        if view is None:
            self.instances.drop(instance)
        else:
            self.instances.put(instance, view)

    def residents(self, instance: InstanceId) -> tuple[RunId, ...]:
        """The task runs that are, or are about to be, on an instance, in order."""
        return tuple(sorted(self._residents.get(instance, ())))


_lasting = attrgetter(*(it.name for it in fields(RunView) if it.name not in _RUNS_DOWN))
"""What of a view does not run down by itself: less work that is left calls for no plan."""
