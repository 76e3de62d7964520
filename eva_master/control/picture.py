"""The state as a policy may see it."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.settings import Settings
from eva_master.control.state import State
from eva_master.learning.delays import Delay
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.ids import CopyId, InstanceId, JobId, Millis, copy_id
from eva_master.model.job import JobKind, JobSpec
from eva_master.model.records import Job, TaskCopy
from eva_master.model.snapshot import CopyView, InstanceView, JobView, Snapshot
from eva_master.model.states import LIVE, SETTLED, CopyState, InstanceState, JobState

PREVIEW = JobId("preview")
"""The job of `hypothetical`."""


def snapshot(state: State, now: Millis, settings: Settings) -> Snapshot:
    """Picture the cluster.

    Args:
        state: What to picture; ended jobs and instances that are going are left out.
        now: The time of the picture.
        settings: Assumed delays where nothing was measured and a job gave no hint.
    """
    jobs: list[JobView] = []
    copies: list[CopyView] = []
    measured = _measured(state)
    for job in sorted(state.active):
        if state.jobs[job].state is not JobState.ENDING:
            view, its_copies = _pictured(state, state.jobs[job], settings)
            jobs.append(view)
            copies.extend(its_copies)
    return Snapshot(
        now_ms=now,
        catalog=tuple(_with_delays(offering, measured) for offering in state.catalog),
        jobs=tuple(jobs),
        copies=tuple(sorted(copies, key=lambda view: view.id)),
        instances=_instances(state, copies, measured),
        arrivals=state.counters.arrivals,
        completions=state.counters.completions,
        throughput=state.throughput,
    )


def pinned(unit: list[TaskCopy]) -> bool:
    """Whether copies that start and stop together are between places.

    They are while one of them starts, stops or moves, and when all that wait know where to go. A
    gang of which some have lost their place is open to planning again. One of which some are done
    stays where it is: a move would have them all start over.
    """
    if any(_in_transit(copy) for copy in unit):
        return True
    states = {copy.state for copy in unit}
    if states == {CopyState.RUNNING, CopyState.SUCCEEDED}:
        return True
    waiting = [copy for copy in unit if copy.state is CopyState.WAITING]
    return bool(waiting) and all(copy.target is not None for copy in waiting)


def _in_transit(copy: TaskCopy) -> bool:
    match copy.state:
        case CopyState.STARTING | CopyState.STOPPING:
            return True
        case CopyState.RUNNING:
            return copy.target != copy.instance
        case _:
            return False


def _pictured(state: State, job: Job, settings: Settings) -> tuple[JobView, tuple[CopyView, ...]]:
    """A job and its copies; taken from the picture before when they have not changed since."""
    pictured = state.pictures.get(job.id)
    if pictured is None:
        copies = _views(state, job)
        view = _job_view(state, job, tuple(copy.id for copy in copies), settings)
        pictured = state.pictures[job.id] = (view, copies)
    return pictured


def _views(state: State, job: Job) -> tuple[CopyView, ...]:
    members = list(state.members(job.id))
    gang = job.spec.kind is JobKind.GANG
    together = pinned(members)
    return tuple(
        CopyView(
            id=copy.id,
            job=job.id,
            task=job.spec.tasks[copy.index],
            instance=copy.target,
            pinned=together if gang else pinned([copy]),
            running=copy.state is CopyState.RUNNING,
        )
        for copy in members
        if copy.state not in SETTLED
    )


def _job_view(state: State, job: Job, copies: tuple[CopyId, ...], settings: Settings) -> JobView:
    spec = job.spec
    return JobView(
        id=job.id,
        kind=spec.kind,
        copies=copies,
        submitted_ms=job.submitted_ms,
        priority=spec.priority,
        remaining_ms=_remaining(state, job),
        checkpoint_ms=_checkpoint_ms(state, spec, settings),
        launch_ms=_launch_ms(state, spec, settings),
    )


def _checkpoint_ms(state: State, spec: JobSpec, settings: Settings) -> int:
    """What a stop takes: a job waits for the slowest of its tasks."""
    hint, default = spec.checkpoint_ms, settings.checkpoint_ms
    lookup = state.learned.delays.lookup
    return max(
        lookup(Delay.CHECKPOINT, workload, hint=hint, default=default)
        for workload in {task.workload for task in spec.tasks}
    )


def _launch_ms(state: State, spec: JobSpec, settings: Settings) -> int:
    """What a start takes, likewise."""
    hint, default = spec.launch_ms, settings.launch_ms
    lookup = state.learned.delays.lookup
    return max(
        lookup(Delay.START, workload, hint=hint, default=default)
        for workload in {task.workload for task in spec.tasks}
    )


def _remaining(state: State, job: Job) -> int | None:
    """Stand-alone time left, for jobs that stated how long they take."""
    if job.spec.duration_ms is None:
        return None
    account = state.job_accounts.get(job.id)
    done = 0 if account is None else account.busy_ms // len(job.spec.tasks)
    return max(0, job.spec.duration_ms - done)


def _measured(state: State) -> dict[str, InstanceType]:
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
    return offering if known is None else replace(offering, type=known)


def _instances(
    state: State, copies: list[CopyView], measured: dict[str, InstanceType]
) -> tuple[InstanceView, ...]:
    residents: dict[InstanceId, list[CopyId]] = {}
    for copy in copies:
        if copy.instance is not None:
            residents.setdefault(copy.instance, []).append(copy.id)
    return tuple(
        InstanceView(
            id=instance.id,
            offering=_with_delays(instance.offering, measured),
            residents=tuple(residents.get(instance.id, ())),
            ready=stage is InstanceState.READY,
        )
        for instance in map(state.instances.__getitem__, sorted(state.live))
        if (stage := instance.state) in LIVE
    )


def hypothetical(state: State, spec: JobSpec, now: Millis, settings: Settings) -> Snapshot:
    """Picture the cluster as if a job had just been submitted; nothing changes.

    Args:
        state: The cluster.
        spec: The job that might be submitted; its id in the picture is `PREVIEW`.
        now: The time of the picture.
        settings: Assumed delays where nothing was measured and a job gave no hint.
    """
    real = snapshot(state, now, settings)
    ids = tuple(copy_id(PREVIEW, index) for index in range(len(spec.tasks)))
    views = tuple(
        CopyView(id_, PREVIEW, task, instance=None, pinned=False, running=False)
        for id_, task in zip(ids, spec.tasks, strict=True)
    )
    job = JobView(
        id=PREVIEW,
        kind=spec.kind,
        copies=ids,
        submitted_ms=now,
        priority=spec.priority,
        remaining_ms=spec.duration_ms,
        checkpoint_ms=_checkpoint_ms(state, spec, settings),
        launch_ms=_launch_ms(state, spec, settings),
    )
    return Snapshot(
        now_ms=now,
        catalog=real.catalog,
        jobs=tuple(sorted((*real.jobs, job), key=lambda view: view.id)),
        copies=tuple(sorted((*real.copies, *views), key=lambda view: view.id)),
        instances=real.instances,
        arrivals=real.arrivals + 1,
        completions=real.completions,
        throughput=real.throughput,
    )
