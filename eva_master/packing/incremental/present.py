"""The present places of task runs, followed from snapshot to snapshot.

A large cluster changes little between rounds, and unchanged views are the same objects. So only
views that changed are looked at, and instances that hold what they held keep their task sets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from eva_master.model.catalog import ids_of
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.model.values import by_id
from eva_master.packing.incremental.view import IncrementalView, replaced
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId

TaskSet = Mapping[int, int]
"""The tasks on an instance: class number -> how many."""


@dataclass(frozen=True, slots=True)
class PresentCluster:
    """The cluster as it is.

    Attributes:
        places: Of every task run that is on a live instance or about to be, in order.
        task_sets: Of every live instance that holds one. While an instance holds the same task runs
            of the same classes, its set is the same object.
    """

    places: Mapping[RunId, InstanceId]
    task_sets: Mapping[InstanceId, TaskSet]


@dataclass(frozen=True, slots=True)
class PlacedRuns:
    """Facts about the task runs of a snapshot.

    Attributes:
        instances: Where each of them is or is about to be, `None` for nowhere.
        residents: The task runs of each of these instances, sorted; the same object while they are
            the same.
        running: Job of each one that runs.
        timed: The running ones of which it is known when they end.
        pinned: The pinned ones.
        alone: The ones that would be late in company.
    """

    instances: Mapping[RunId, InstanceId | None] = field(default_factory=dict)
    residents: Mapping[InstanceId, tuple[RunId, ...]] = field(default_factory=dict)
    running: Mapping[RunId, JobId] = field(default_factory=dict)
    timed: Set[RunId] = frozenset()
    pinned: Set[RunId] = frozenset()
    alone: Set[RunId] = frozenset()


def placed_runs() -> IncrementalView[RunView, PlacedRuns]:
    """Follows task runs with what packing asks of all of them."""
    return IncrementalView(PlacedRuns(), _moved_on, replaced)


def _moved_on(
    before: PlacedRuns, _: Sequence[RunView], gone: Sequence[RunView], fresh: Sequence[RunView]
) -> PlacedRuns:
    instances, running = dict(before.instances), dict(before.running)
    changed: dict[InstanceId, set[RunId]] = {}

    def residents(instance: InstanceId) -> set[RunId]:
        return changed.get(instance) or changed.setdefault(
            instance, set(before.residents.get(instance, ()))
        )

    for run in gone:
        del instances[run.id]
        running.pop(run.id, None)
        if run.instance is not None:
            residents(run.instance).remove(run.id)
    for run in fresh:
        instances[run.id] = run.instance
        if run.running:
            running[run.id] = run.job
        if run.instance is not None:
            residents(run.instance).add(run.id)
    every = dict(before.residents)
    for instance, runs in changed.items():
        if not runs:
            every.pop(instance, None)
        elif (now := tuple(sorted(runs))) != every.get(instance):
            every[instance] = now
    gone_ids = {run.id for run in gone}
    return PlacedRuns(
        instances,
        every,
        running,
        (before.timed - gone_ids) | {run.id for run in fresh if _is_timed(run)},
        (before.pinned - gone_ids) | {run.id for run in fresh if run.pinned},
        (before.alone - gone_ids) | {run.id for run in fresh if run.alone},
    )


def _is_timed(run: RunView) -> bool:
    work = run.remaining
    return run.running and work is not None and not work.estimated


@dataclass(frozen=True, slots=True)
class FollowedJobs:
    """Facts about the jobs of a snapshot.

    Attributes:
        gangs: The gangs of more than one task run, sorted by id.
        change_ms: Time that a change of places takes, by job.
    """

    gangs: Sequence[JobView] = ()
    change_ms: Mapping[JobId, int] = field(default_factory=dict)


def followed_jobs() -> IncrementalView[JobView, FollowedJobs]:
    """Follows jobs with what packing asks of all of them."""
    return IncrementalView(FollowedJobs(), _jobs_moved_on, replaced)


def _jobs_moved_on(
    before: FollowedJobs, _: Sequence[JobView], gone: Sequence[JobView], fresh: Sequence[JobView]
) -> FollowedJobs:
    gone_ids = {job.id for job in gone}
    gangs = [job for job in before.gangs if job.id not in gone_ids]
    gangs += [job for job in fresh if job.spec.kind is JobKind.GANG and len(job.runs) > 1]
    change_ms = dict(before.change_ms)
    for job in gone:
        del change_ms[job.id]
    change_ms.update((job.id, job.delays.change_ms) for job in fresh)
    return FollowedJobs(tuple(sorted(gangs, key=_name)), change_ms)


def sold_view() -> IncrementalView[InstanceView, Mapping[InstanceId, OfferingId]]:
    """Follows instances with the offering of each, in order."""
    return IncrementalView({}, _sold, replaced)


def _sold(
    before: Mapping[InstanceId, OfferingId],
    views: tuple[InstanceView, ...],
    _: Sequence[InstanceView],
    fresh: Sequence[InstanceView],
) -> Mapping[InstanceId, OfferingId]:
    new = dict(zip([view.id for view in fresh], ids_of(v.offering for v in fresh), strict=True))
    return {name: new.get(name) or before[name] for name in by_id(views)}


def _name(job: JobView) -> JobId:
    return job.id


class PresentPlaces:
    """Makes the present cluster of one snapshot after the other.

    The memory of the last snapshot makes no difference but to which objects task sets are.
    """

    def __init__(self) -> None:
        self._last: tuple[PlacedRuns, Mapping[RunId, int], Mapping[InstanceId, TaskSet]]
        self._last = PlacedRuns(), {}, {}

    def of(
        self,
        runs: Iterable[RunId],
        placed: PlacedRuns,
        live: Collection[InstanceId],
        class_of: Mapping[RunId, int],
    ) -> PresentCluster:
        """The present cluster.

        Args:
            runs: The task runs, in order.
            placed: Facts about them.
            live: The live instances, in order.
            class_of: Class of every task run.
        """
        before, earlier, last_sets = self._last
        instances = placed.instances
        other = {instances[run] for run, number in class_of.items() if earlier.get(run) != number}
        task_sets: dict[InstanceId, TaskSet] = {}
        for instance in live:
            residents = placed.residents.get(instance)
            if residents is None:
                continue
            task_set = last_sets.get(instance)
            if task_set is None or instance in other or before.residents[instance] is not residents:
                task_set = _counted(residents, class_of)
            task_sets[instance] = task_set
        self._last = placed, class_of, task_sets
        places = {
            run: home for run in runs if (home := instances[run]) is not None and home in live
        }
        return PresentCluster(places, task_sets)


def _counted(runs: Sequence[RunId], class_of: Mapping[RunId, int]) -> TaskSet:
    counts: dict[int, int] = {}
    for run in runs:
        counts[class_of[run]] = counts.get(class_of[run], 0) + 1
    return counts
