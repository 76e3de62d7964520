"""From one model to the next: what changed is copied, the rest is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from eva_master.control.readside.model import ActiveName, ClusterModel, ReadersValuation
from eva_master.control.readside.persistent_map import PersistentMap
from eva_master.control.readside.preview import JobPreview
from eva_master.control.readside.shown_tasks import empty_index, followed
from eva_master.control.rounds.moment import Recent
from eva_master.control.settings import Settings
from eva_master.control.state.derived.dags import Dag
from eva_master.control.state.derived.task_counts import TaskCounts
from eva_master.control.state.store import State
from eva_master.control.state.unwritten import Unpublished
from eva_master.model.fleet.keeping import KeepReason
from eva_master.model.records import Job
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_wire.values.ids import (
    InstanceId,
    JobId,
    Millis,
    instance_order,
    job_order,
    number_of,
    run_order,
)

K = TypeVar("K")
V = TypeVar("V")


class Publisher:
    """Makes read models of a state, in the thread that owns the state.

    A model takes time in proportion to the changes since the last one.

    Args:
        state: The state, which records its changes from now on.
        settings: Settings for previews.
        recents: Returns the data that the rounds of each partition leave to the next one.
        queue: Returns the queue at the limits that partitions share.
        kept: Returns the reasons for which empty instances stay.
    """

    def __init__(
        self,
        state: State,
        settings: Settings,
        recents: Callable[[], Mapping[str, Recent]] = dict,
        queue: Callable[[], SharedQueue | None] = lambda: None,
        kept: Callable[[], Mapping[InstanceId, KeepReason]] = dict,
    ) -> None:
        self._state = state
        self._recents = recents
        self._queue, self._kept = queue, kept
        state.begin_publishing()
        self._model = _empty(state, settings)

    def publish(self, now: Millis) -> ClusterModel:
        """The present state as a read model."""
        state, before = self._state, self._model
        changed = state.take_unpublished()
        parts: dict[str, Any] = {}
        if changed.jobs:
            parts.update(self._jobs(changed))
        if changed.runs:
            touched = state.runs.touched
            parts["index"] = followed(before.index, changed.runs, before.touched, touched)
            parts["touched"] = _updated(before.touched, changed.runs, touched)
        if changed.jobs or changed.runs:
            parts["counts"] = self._tasks(changed)
        if changed.instances:
            parts.update(self._instances(changed))
        if parts or state.tally.tenants.totals() is not before.totals.tenants:
            parts["totals"] = state.totals
        self._model = replace(
            before,
            **_shared(state),
            at_ms=now,
            agreements=state.tally.lending.in_force(),
            prices=self._prices(),
            pool_reasons=state.membership.reasons,
            queued=state.membership.queued,
            stated=state.membership.stated,
            recents=self._recents(),
            queue=self._queue(),
            kept=self._kept(),
            **parts,
        )
        return self._model

    def _jobs(self, changed: Unpublished) -> dict[str, PersistentMap[Any, Any]]:
        state, before, names = self._state, self._model, changed.jobs
        newest: dict[tuple[str, str], JobId] = {}
        dropped: list[tuple[str, str]] = []
        for name in sorted(names, key=job_order):
            job = state.jobs.get(name)
            if job is not None and name not in before.jobs:
                newest[job.spec.owner, job.spec.name] = name
            elif job is None and (old := before.jobs.get(name)) is not None:
                key = old.spec.owner, old.spec.name
                if before.names.get(key) == name:
                    dropped.append(key)
        return {
            "jobs": _updated(before.jobs, names, state.jobs),
            "active": _updated(before.active, names, state.jobs, state.active.__contains__),
            "job_accounts": _updated(before.job_accounts, names, state.job_accounts),
            "dag_by_job": _updated(before.dag_by_job, names, self._dags(names)),
            "handed": _updated(before.handed, names, state.handed),
            "names": before.names.updated(newest, [key for key in dropped if key not in newest]),
            "active_names": self._active_names(names),
        }

    def _active_names(self, changed: Iterable[JobId]) -> PersistentMap[ActiveName, JobId]:
        """The names of active jobs after some jobs have changed."""
        state, before = self._state, self._model
        begun = [name for name in changed if name in state.active and name not in before.active]
        over = [name for name in changed if name in before.active and name not in state.active]
        put = {key: name for name in begun for key in _names_of(state.jobs[name])}
        drop = [key for name in over for key in _names_of(before.jobs[name])]
        return before.active_names.updated(put, drop)

    def _dags(self, names: Iterable[JobId]) -> dict[JobId, Dag]:
        jobs, of = self._state.jobs, self._state.dags.of
        dags = ((name, of(jobs[name])) for name in names if name in jobs)
        return {name: dag for name, dag in dags if dag is not None}

    def _tasks(self, changed: Unpublished) -> PersistentMap[JobId, TaskCounts]:
        """Task counts of each changed job."""
        state, touched = self._state, self._state.runs.touched
        names = dict.fromkeys(changed.jobs)
        names.update((touched[run].job, None) for run in changed.runs if run in touched)
        counts = {
            name: state.tasks[name].counted(
                state.finished_tasks.telling(state.jobs[name]),
                state.finished_tasks.of(state.jobs[name]),
                state.finished_tasks.pilots_left(name),
            )
            for name in names
            if name in state.jobs
        }
        return _updated(self._model.counts, names, counts)

    def _instances(self, changed: Unpublished) -> dict[str, PersistentMap[Any, Any]]:
        state, before, names = self._state, self._model, changed.instances
        residents = {name: tuple(state.places.occupant_ids(name)) for name in names}
        return {
            "instances": _updated(before.instances, names, state.instances),
            "live": _updated(before.live, names, state.instances, state.live.__contains__),
            "instance_accounts": _updated(before.instance_accounts, names, state.instance_accounts),
            "residents": _updated(before.residents, names, residents, residents.get),
            "sessions": _updated(before.sessions, names, state.sessions),
        }

    def _prices(self) -> ReadersValuation:
        prices, sources = self._model.prices, (self._state.catalog, self._state.learned.voices)
        return prices if prices.still_holds(*sources) else ReadersValuation(*sources)


def _updated(
    old: PersistentMap[K, V],
    names: Iterable[K],
    values: Mapping[K, V],
    keep: Callable[[K], object] = lambda _: True,
) -> PersistentMap[K, V]:
    """A map in which some entries are as `values` has them, or missing where it does not."""
    put: dict[K, V] = {}
    drop: list[K] = []
    for name in names:
        before, now = old.get(name), values.get(name) if keep(name) else None
        if now is None:
            if before is not None:
                drop.append(name)
        elif now is not before:  # that it is as before is soon seen, and a new map takes long
            put[name] = now
    return old.updated(put, drop)


def _shared(state: State) -> dict[str, Any]:
    """Values of the state that a read model has as they are."""
    return {
        "counters": state.counters,
        "catalog": state.catalog,
        "listing": state.listing,
        "learned": state.learned,
        "resolved": state.figures.resolved,
        "market": state.market,
        "month_levels": state.month_levels.by_party,
        "trouble": state.trouble,
        "wall": state.wall,
        "memory": state.memories.get(""),
        "memories": dict(state.memories),
    }


def _empty(state: State, settings: Settings) -> ClusterModel:
    return ClusterModel(
        at_ms=Millis(0),
        settings=settings,
        jobs=PersistentMap(job_order),
        touched=PersistentMap(run_order),
        index=empty_index(),
        counts=PersistentMap(job_order),
        instances=PersistentMap(instance_order),
        active=PersistentMap(job_order),
        live=PersistentMap(instance_order),
        job_accounts=PersistentMap(job_order),
        instance_accounts=PersistentMap(instance_order),
        names=PersistentMap(_itself),
        active_names=PersistentMap(_itself),
        residents=PersistentMap(instance_order),
        sessions=PersistentMap(instance_order),
        totals=state.totals,
        **_shared(state),
        agreements={},
        prices=ReadersValuation(state.catalog, state.learned.voices),
        pool_reasons={},
        queued={},
        stated={},
        dag_by_job=PersistentMap(job_order),
        handed=PersistentMap(job_order),
        recents={},
        queue=None,
        kept={},
        previews=JobPreview,
    )


def _itself(name: K) -> K:
    return name


def _names_of(job: Job) -> list[ActiveName]:
    """The keys of an active job: among those of its owner, and of all owners."""
    return [(job.spec.name, owner, number_of(job.id), job.id) for owner in (job.spec.owner, "")]
