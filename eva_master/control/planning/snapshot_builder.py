"""The state as a policy may see it.

A snapshot is not made from scratch: the view cache keeps the views of the last one, and only jobs
and instances that have changed since are looked at.
"""

from __future__ import annotations

from dataclasses import replace
from operator import is_

from eva_master.control.measure import remaining
from eva_master.control.planning import scope
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords
from eva_master.control.supply.spot import valued
from eva_master.learning.delays import Delay
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.ids import InstanceId, Millis, RunId
from eva_master.model.job import JobSpec
from eva_master.model.planning.snapshot import InstanceView, JobView, RunView, Snapshot
from eva_master.model.records import Job
from eva_master.model.states import TERMINAL_RUN, InstanceState, RunState


def snapshot(state: PlanningRecords, now: Millis, settings: Settings) -> Snapshot:
    """Snapshot the cluster.

    Args:
        state: What to snapshot; ended jobs and instances that are going are left out.
        now: The time of the snapshot.
        settings: Assumed delays where nothing was measured and a job gave no hint.
    """
    view_cache = state.view_cache
    _brought_up_to_date(state, now, settings)
    return Snapshot(
        now_ms=now,
        catalog=view_cache.catalog,
        jobs=view_cache.jobs.ordered(),
        runs=view_cache.runs.ordered(),
        instances=view_cache.instances.ordered(),
        arrivals=state.counters.arrivals,
        completions=state.counters.completions,
        throughput=state.throughput,
        standalone=state.standalone.known,
        profile=settings.profile,
    )


def revision(state: PlanningRecords, now: Millis, settings: Settings) -> int:
    """A number that is the same as long as snapshots differ in their time alone.

    What it takes depends on how much has changed since the last snapshot, not on the cluster.
    """
    _brought_up_to_date(state, now, settings)
    return state.view_cache.revision


def _brought_up_to_date(state: PlanningRecords, now: Millis, settings: Settings) -> None:
    """Make the views anew that may no longer be true."""
    view_cache = state.view_cache
    _follow_the_rest(state, now, settings)
    for name in view_cache.outdated_jobs():
        job = state.jobs.get(name)
        if job is not None and scope.plans_job(state, job):
            runs = _views(state, job)
            view = _job_view(state, job, tuple(run.id for run in runs), settings)
            view_cache.put_job(name, view, runs)
        else:
            view_cache.put_job(name, None, ())
    # Who came and who went has been noted by now.
    for place in view_cache.outdated_instances():
        view_cache.put_instance(place, _instance_view(state, place))


def _follow_the_rest(state: PlanningRecords, now: Millis, settings: Settings) -> None:
    """See whether anything has changed that is no job, task run or instance."""
    view_cache = state.view_cache
    basis = (
        tuple(offering.id for offering in state.catalog if not offering.available(now)),
        state.counters.arrivals,
        state.counters.completions,
        state.throughput,
        state.standalone.known,
    )
    if basis != view_cache.basis:
        view_cache.basis = basis
        view_cache.revision += 1
    sources = state.catalog, state.interruptions, state.learned.delays
    kept = tuple(map(is_, view_cache.sources, sources))
    if kept and all(kept):
        return
    view_cache.sources = sources
    measured = _measured(state)
    if measured != view_cache.measured:
        view_cache.measured = measured
        view_cache.instances_changed()
    elif kept and all(kept[:2]):
        return  # what was measured last is no news
    listed = tuple(
        valued(_with_delays(offering, measured), state, settings) for offering in state.catalog
    )
    if listed != view_cache.catalog:
        view_cache.catalog = listed
        view_cache.revision += 1


def _views(state: PlanningRecords, job: Job) -> tuple[RunView, ...]:
    members = list(state.members(job.id))
    gang = job.is_gang
    together = scope.pinned(members)
    work = remaining.of_job(state, job)
    return tuple(
        RunView(
            id=run.id,
            job=job.id,
            task=job.spec.tasks[run.index],
            instance=scope.place(state, run),
            pinned=together if gang else scope.pinned([run]),
            running=run.state is RunState.RUNNING and scope.place(state, run) is not None,
            held=run.target is None and bool(run.waiting_for),
            remaining=work[run.id],
        )
        for run in members
        if run.state not in TERMINAL_RUN
    )


def _job_view(
    state: PlanningRecords, job: Job, runs: tuple[RunId, ...], settings: Settings
) -> JobView:
    spec = job.spec
    return JobView(
        id=job.id,
        kind=spec.kind,
        runs=runs,
        submitted_ms=job.arrived_ms,
        priority=spec.priority,
        checkpoint_ms=checkpoint_ms(state, spec, settings),
        launch_ms=launch_ms(state, spec, settings),
    )


def checkpoint_ms(state: PlanningRecords, spec: JobSpec, settings: Settings) -> int:
    """What a stop takes: a job waits for the slowest of its tasks."""
    hint, default = spec.checkpoint_ms, settings.checkpoint_ms
    lookup = state.learned.delays.lookup
    return max(
        lookup(Delay.CHECKPOINT, workload, hint=hint, default=default)
        for workload in {task.workload for task in spec.tasks}
    )


def launch_ms(state: PlanningRecords, spec: JobSpec, settings: Settings) -> int:
    """What a start takes, likewise."""
    hint, default = spec.launch_ms, settings.launch_ms
    lookup = state.learned.delays.lookup
    return max(
        lookup(Delay.START, workload, hint=hint, default=default)
        for workload in {task.workload for task in spec.tasks}
    )


def _measured(state: PlanningRecords) -> dict[str, InstanceType]:
    """The types of the catalog whose delays were measured, with these in place of the assumed."""
    delays = state.learned.delays
    names = {name for kind, name in delays.known if kind in (Delay.ACQUISITION, Delay.SETUP)}
    types = {offering.type.name: offering.type for offering in state.catalog}
    return {
        name: replace(
            known,
            acquisition_ms=delays.lookup(
                Delay.ACQUISITION, name, hint=None, default=known.acquisition_ms
            ),
            setup_ms=delays.lookup(Delay.SETUP, name, hint=None, default=known.setup_ms),
        )
        for name in names
        if (known := types.get(name)) is not None
    }


def _with_delays(offering: Offering, measured: dict[str, InstanceType]) -> Offering:
    known = measured.get(offering.type.name)
    if known is None:
        return offering
    # Of the rest, an offering's own stands: a type on the spot market is in a family of its own.
    machine = replace(offering.type, acquisition_ms=known.acquisition_ms, setup_ms=known.setup_ms)
    return replace(offering, type=machine)


def _instance_view(state: PlanningRecords, name: InstanceId) -> InstanceView | None:
    """`None` for one that no plan may use."""
    if not state.can_place(name):
        return None
    instance = state.instances[name]
    return InstanceView(
        id=name,
        offering=_with_delays(instance.offering, state.view_cache.measured),
        residents=state.view_cache.residents(name),
        ready=instance.state is InstanceState.READY,
    )
