"""Views of jobs, task runs and instances, kept from snapshot to snapshot until they change."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from typing import Any, Generic, TypeVar

from eva_master.control.state.finished import Kind
from eva_master.learning.delays import two_digits
from eva_master.learning.runtimes import OwnerTimes
from eva_master.learning.voices.names import Voice, plain, split, voice_of
from eva_master.learning.voices.resolution import Resolved
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.estimate import Estimate, near
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, RemainingWork, RunView
from eva_master.model.records import Instance, TaskRun
from eva_master.model.values import Views, replace
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId, RunId, Workload

K = TypeVar("K", bound=str)
V = TypeVar("V")

_TASKS_SHOWN = 16_384
"""Number of tasks of which the form that policies see is remembered."""
_PARTS_SHARED = 16_384
"""Number of different parts of views that are remembered."""
_NO_PROGRAM = Program("")
_RUNS_DOWN = frozenset({"remaining", "since_ms", "ran"})
_LARGE_GANG, _APART_MS = 100, 10
"""Reports of a gang with more members are compared with its view so far apart, for each member."""


class SortedValues(Generic[K, V]):
    """Values in the order of their keys; the tuple of them is made anew only after a change.

    Attributes:
        get: Returns the value of a key, `None` if it has none.
    """

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self.get: Callable[[K], V | None] = self._values.get
        self._keys: list[K] = []
        self._added: list[K] = []
        self._dropped: set[K] = set()
        self._ordered: Views[V] | None = Views()

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
                # A key that was dropped and added again must occur only once.
                self._added = list({key for key in self._added if key in self._values})
                self._dropped = set()
            if self._added:
                self._keys.extend(self._added)
                self._keys.sort()  # quick on nearly sorted keys
                self._added = []
            self._ordered = Views(map(self._values.__getitem__, self._keys))
        return self._ordered


class ToldEstimates:
    """Estimates of one job's run times as policies were told them, by kind."""

    def __init__(self) -> None:
        self._estimates: dict[Kind, Estimate] = {}
        self._times: dict[Kind, tuple[int, int]] = {}
        """Average run times, each with its value rounded to two digits."""

    def settled(self, kind: Kind, fresh: Estimate | None) -> Estimate | None:
        """The estimate told before if the new one is within a twentieth of it; else the new one."""
        if fresh is None:
            self._estimates.pop(kind, None)
            return None
        before = self._estimates.get(kind)
        if before is not None and before.near(fresh):
            return before
        self._estimates[kind] = fresh
        return fresh

    def settled_ms(self, kind: Kind, mean_ms: int) -> int:
        """The two-digit time told before if it is still within a twentieth; else the new one."""
        before = self._times.get(kind)
        if before is None or not near(before[0], mean_ms):
            before = self._times[kind] = mean_ms, two_digits(mean_ms)
        return before[1]


_MadeOf = tuple[TaskRun, Instance | None, RemainingWork | None, bool, Workload]
"""See `ViewCache.kept`."""


class ViewCache:
    """Views made by `planning.snapshot_builder`, with notes of those that may be out of date.

    Attributes:
        jobs: Views by job.
        runs: Views by task run.
        instances: Views by instance.
        draining: Views of instances that take no new task, by instance.
        counts: Number of views in `instances` by offering.
        catalog: Offerings with learned delays in place of assumed ones.
        measured: The types with learned delays, by name.
        basis: The last inputs other than jobs, task runs and instances.
        sources: The inputs of `catalog` and `measured`.
        listed_until: Time at which spot offerings of `catalog` change their value, since pools age.
        shown_offerings: Offerings of instances by their ids as objects, each with its form that
            policies see.
        made: Number of views ever made.
        resolved: The learned figures by which plans are made, whose labels the views have.
        revision: Grows with every change that a policy can see, except for the passing of time.
        common: Grows with those changes that belong to no partition.
        parts: For each partition, grows with every change of its jobs and instances.
    """

    def __init__(self) -> None:
        self.jobs: SortedValues[JobId, JobView] = SortedValues()
        self.runs: SortedValues[RunId, RunView] = SortedValues()
        self.instances: SortedValues[InstanceId, InstanceView] = SortedValues()
        self.draining: SortedValues[InstanceId, InstanceView] = SortedValues()
        self.counts: Counter[OfferingId] = Counter()
        self.catalog: Catalog = ()
        self.measured: dict[str, InstanceType] = {}
        self.shown_offerings: dict[int, tuple[Offering, Offering]] = {}
        self.basis: tuple[object, ...] = ()
        self.sources: tuple[object, ...] = ()
        self.missing: tuple[Catalog, tuple[Offering, ...]] = (), ()
        """A catalog, and its offerings that were not on sale at some time."""
        self.listed_until: float = math.inf
        self.made = 0
        self.revision = 0
        self._limited: tuple[Catalog, tuple[object, ...], Catalog] | None = None
        self.common = 0
        self.parts: Counter[str] = Counter()
        self._followed: dict[JobId, Millis] = {}
        """Times of the last comparison of large gangs' reports with their views."""
        self._made_of: dict[RunId, _MadeOf] = {}
        self._residents: dict[InstanceId, set[RunId]] = {}
        self.resolved = Resolved()
        self._specs: dict[JobId, tuple[JobSpec, JobSpec]] = {}
        self._disk_jobs: set[JobId] = set()
        self._shown_tasks: dict[tuple[int, Workload], tuple[TaskSpec, TaskSpec]] = {}
        self._shared: dict[Any, Any] = {}
        self._by_workload: dict[Workload, dict[JobId, int]] = {}
        """Number of task-run views of each job, by the plain name of the workload."""
        self._estimated: dict[JobId, OwnerTimes] = {}
        self._told: dict[JobId, ToldEstimates] = {}
        self._jobs: dict[JobId, None] = {}
        self._instances: dict[InstanceId, None] = {}
        self._alone: dict[JobId, set[InstanceId]] = {}
        self._company_changed: set[InstanceId] = set()
        """Where a job has begun to be alone, ended it, or is offered else, since this was taken."""

    def limited_to(
        self, counts: tuple[object, ...], limited: Callable[[Catalog, Any], Catalog]
    ) -> Catalog:
        """The catalog with the present limits; the same value while both are unchanged.

        Args:
            counts: The values from which `limited` makes limits; empty for the plain catalog.
            limited: Makes a catalog with limits.
        """
        if not counts:
            return self.catalog
        if self._limited is None or self._limited[:2] != (self.catalog, counts):
            self._limited = self.catalog, counts, limited(self.catalog, counts)
        return self._limited[2]

    # -- going out of date -----------------------------------------------------------------------

    def job_changed(self, job: JobId) -> None:
        """The view of a job, or of its task runs, may no longer be true."""
        self._jobs[job] = None

    def instance_changed(self, instance: InstanceId) -> None:
        """The view of an instance may no longer be true."""
        self._instances[instance] = None

    def workload_changed(self, workload: Workload, voice: Voice | None = None) -> None:
        """Note that views of all jobs with a task of a workload may be out of date.

        Args:
            workload: Plain name of the workload.
            voice: The voice whose jobs changed; `None` for all jobs with this workload.
        """
        for job in self._by_workload.get(plain(workload), ()):
            if voice is None or self._is_of(job, voice):
                self._jobs[job] = None

    def _is_of(self, job: JobId, voice: Voice) -> bool:
        view = self.jobs.get(job)
        return view is None or voice_of(view.spec) == voice

    def follow_estimate(self, job: JobId, known: OwnerTimes | None) -> None:
        """Note what the view of a job was made of; `None` if other jobs tell nothing of it."""
        self._estimated.pop(job, None)
        if known is not None:
            self._estimated[job] = known

    def follows(self, gang: JobId, members: int, now: Millis) -> bool:
        """Whether a report of a gang's member is compared with its view; in a large gang not each.

        That looks at all members, each of which reports.
        """
        if members <= _LARGE_GANG:
            return True
        last_ms = self._followed.get(gang)
        due = last_ms is None or now - last_ms >= members * _APART_MS
        if due:
            self._followed[gang] = now
        return due

    def told_estimates(self, job: JobId) -> ToldEstimates:
        """Estimates of a job's run times as policies were told them, while the job is shown."""
        return self._told.setdefault(job, ToldEstimates())

    def oldest_estimates(self, at_most: int) -> list[tuple[JobId, OwnerTimes]]:
        """Jobs and what their views were made of, those first that were followed longest ago."""
        return list(islice(self._estimated.items(), at_most))

    def rates_changed(self, voice: Voice | None = None) -> None:
        """Views of all jobs of known length, or of a voice's, may no longer be true."""
        for view in self.runs.ordered():
            if view.remaining is not None and (voice is None or self._is_of(view.job, voice)):
                self._jobs[view.job] = None

    def follow_labels(self, resolved: Resolved) -> None:
        """Have the views of those jobs made anew of which a workload has another label."""
        before, self.resolved = self.resolved, resolved
        if before.labels is resolved.labels and before.strangers is resolved.strangers:
            return
        if before.labels == resolved.labels and before.strangers == resolved.strangers:
            return
        names = {name for _, name in {*before.labels, *resolved.labels}}
        for name in sorted(names & self._by_workload.keys()):
            for job in self._by_workload[name]:
                view = self.jobs.get(job)
                voice = None if view is None else voice_of(view.spec)
                if voice is None or before.label(voice, name) != resolved.label(voice, name):
                    self._jobs[job] = None

    def without_tasks(self, job: JobId, spec: JobSpec) -> JobSpec:
        """A job as policies see it, without its tasks; the same value for the same job."""
        made = self._specs.get(job)
        if made is None or made[0] is not spec:
            made = self._specs[job] = spec, spec.of_tasks(())
        return made[1]

    def shown_task(self, voice: Voice, task: TaskSpec) -> TaskSpec:
        """A task as policies see it, with the name of its workload in plans; one for equal ones."""
        label = self.resolved.label(voice, task.workload)
        made = self._shown_tasks.get((id(task), label))
        if made is None or made[0] is not task:
            if len(self._shown_tasks) >= _TASKS_SHOWN:
                self._shown_tasks.clear()
            shown = self.shared(replace(task, workload=label, program=_NO_PROGRAM, name=""))
            made = self._shown_tasks[id(task), label] = task, shown
        return made[1]

    def shared(self, part: V) -> V:
        """A part of a view, or an equal one of an earlier view: one that many have is sent once."""
        if len(self._shared) >= _PARTS_SHARED:
            self._shared.clear()
        first: V = self._shared.setdefault(part, part)
        return first

    def instances_changed(self) -> None:
        """Note that the views of all instances may be out of date."""
        for view in (*self.instances.ordered(), *self.draining.ordered()):
            self._instances[view.id] = None

    def outdated_jobs(self) -> list[JobId]:
        """Take the jobs whose views have to be made anew."""
        taken, self._jobs = list(self._jobs), {}
        return taken

    def alone_where_some_came_or_went(self) -> list[JobId]:
        """Jobs that are to be alone, of which it matters who else is where they are."""
        return [job for job, places in self._alone.items() if places & self._instances.keys()]

    @property
    def is_alone_somewhere(self) -> bool:
        """Whether any job was to be alone when it was last looked at."""
        return bool(self._alone)

    def holds_who_is_alone(self, instance: InstanceId) -> bool:
        """Whether somebody was to be alone on an instance when that was last looked at."""
        return any(instance in places for places in self._alone.values())

    def beside_who_is_alone(self) -> list[JobId]:
        """Take the jobs beside a job that is to be alone, whose views may not show that yet.

        Jobs beside a job that need no longer be alone are included.
        """
        alone = set().union(*self._alone.values()) & self._instances.keys()
        places, self._company_changed = alone | self._company_changed, set()
        residents = (self.runs.get(run) for place in places for run in self.residents(place))
        return sorted({run.job for run in residents if run is not None})

    def outdated_instances(self) -> list[InstanceId]:
        """Take the instances whose views have to be made anew."""
        taken, self._instances = list(self._instances), {}
        return taken

    # -- coming up to date -----------------------------------------------------------------------

    def kept(
        self,
        run: TaskRun,
        there: Instance | None,
        work: RemainingWork | None,
        *,
        beside: bool,
        label: Workload,
    ) -> RunView | None:
        """The kept view of a task run if its inputs are the same; `None` if a new one is needed.

        Args:
            run: Its record; its task has no other run.
            there: The record of its target instance.
            work: The remaining work.
            beside: Whether a job that is to be alone is there.
            label: The name of its workload in plans.
        """
        before = self._made_of.get(run.id)
        self._made_of[run.id] = made_of = run, there, work, beside, label
        same = before is not None and before[0] is run and before[1] is there
        return self.runs.get(run.id) if same and before == made_of else None

    def follow_disk(self, job: JobId, needs: bool) -> None:
        """Follow whether a job needs disk; while any does, instances are told apart by theirs."""
        before = self.by_disk
        (self._disk_jobs.add if needs else self._disk_jobs.discard)(job)
        if self.by_disk is not before:
            self.shown_offerings.clear()
            self.instances_changed()

    @property
    def by_disk(self) -> bool:
        """Whether instances are told apart by their disks: any job needs disk."""
        return bool(self._disk_jobs)

    def put_job(self, job: JobId, view: JobView | None, runs: Sequence[RunView]) -> None:
        """Replace the views of a job and of its task runs; `None` if it is not to be seen."""
        self.made += view is not None
        if view is None:
            self._told.pop(job, None)
            self._followed.pop(job, None)
            self._specs.pop(job, None)
        old, before = self.jobs.get(job), self.revision
        seen = {run.id: run for run in runs}
        if view != old:
            self.revision += view is None or old is None or _settled(view) != _settled(old)
            if view is None:
                self.jobs.drop(job)
            else:
                self.jobs.put(job, view)
        was = self._alone.pop(job, set())
        if any(run.alone for run in runs):
            self._alone[job] = {run.instance for run in runs if run.instance is not None}
        alone = self._alone.get(job, set())
        self._instances.update(dict.fromkeys(was ^ alone))
        if alone and any(map(self._is_offered_else, runs)):
            self._company_changed |= alone
        self._company_changed |= was ^ alone
        for id_ in () if old is None else old.runs:
            if id_ not in seen:
                self._put_run(id_, None)
        for run in runs:
            self._put_run(run.id, run)
        self._note(old, view, self.revision - before)

    def _is_offered_else(self, run: RunView) -> bool:
        """Whether a task run may be bought other things than it was when it was last seen."""
        old = self.runs.get(run.id)
        return old is None or old.task.demand != run.task.demand

    def _put_run(self, id_: RunId, view: RunView | None) -> None:
        old = self.runs.get(id_)
        if view is old:
            return
        self.made += view is not None
        if view == old:
            return
        self.revision += view is None or old is None or _lasting(view) != _lasting(old)
        before = None if old is None else old.instance
        after = None if view is None else view.instance
        if old is not None and (view is None or view.task is not old.task):
            self._note_workload(old, -1)
        if view is None:
            self.runs.drop(id_)
            self._made_of.pop(id_, None)
        else:
            self.runs.put(id_, view)
            if old is None or view.task is not old.task:
                self._note_workload(view, 1)
        if old is not None and view is not None and view.pinned is not old.pinned and after:
            self._instances[after] = None
        if before != after:
            if before is not None:
                self._residents[before].discard(id_)
                if not self._residents[before]:
                    del self._residents[before]
                self._instances[before] = None
            if after is not None:
                self._residents.setdefault(after, set()).add(id_)
                self._instances[after] = None

    def _note_workload(self, view: RunView, more: int) -> None:
        name = split(view.task.workload)[0]
        jobs = self._by_workload.setdefault(name, {})
        jobs[view.job] = jobs.get(view.job, 0) + more
        if not jobs[view.job]:
            del jobs[view.job]
            if not jobs:
                del self._by_workload[name]

    def put_instance(self, instance: InstanceId, view: InstanceView | None) -> None:
        """Replace the view of an instance; `None` if it is not to be seen."""
        old = self.instances.get(instance)
        if old is None or view is None or view.offering is not old.offering:
            for counted, more in ((old, -1), (view, 1)):
                if counted is not None:
                    self.counts[counted.offering.id] += more
        self._put_instance(self.instances, instance, view)

    def put_draining(self, instance: InstanceId, view: InstanceView | None) -> None:
        """Put the view of an instance that takes no new task."""
        self._put_instance(self.draining, instance, view)

    def _put_instance(
        self,
        views: SortedValues[InstanceId, InstanceView],
        instance: InstanceId,
        view: InstanceView | None,
    ) -> None:
        self.made += view is not None
        old = views.get(instance)
        if view == old:
            return
        self.revision += 1
        self._note(old, view, 1)
        if view is None:
            views.drop(instance)
        else:
            views.put(instance, view)

    def _note(
        self, old: JobView | InstanceView | None, new: JobView | InstanceView | None, changes: int
    ) -> None:
        """Something of the partition in which it was, and of that in which it is, has changed."""
        if changes:
            for partition in {view.partition for view in (old, new) if view is not None}:
                self.parts[partition] += changes

    def residents(self, instance: InstanceId) -> tuple[RunId, ...]:
        """The task runs that are, or are about to be, on an instance, in order."""
        return tuple(sorted(self._residents.get(instance, ())))


_lasting = attrgetter(*(field.name for field in fields(RunView) if field.name not in _RUNS_DOWN))
"""Fields of a view that do not change by themselves: a decrease of remaining work needs no plan."""
_settled = attrgetter(*(field.name for field in fields(JobView) if field.name != "progress"))
"""Fields of a view besides estimates and times, whose changes need no plan of their own."""
