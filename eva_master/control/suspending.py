"""Suspension of jobs: by users, who also resume them, and by plans.

A suspended task run is stopped like a task that moves, goes on from a checkpoint, and has no
target. Without a place it costs nothing, and its suspended time does not count as duration. A job
suspended by a user is in no snapshot; task runs suspended by a plan wait for a plan like others.
"""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.model.actions import Reply
from eva_master.model.events import ResumeRequested, SuspendRequested
from eva_master.model.planning.plan import Suspend
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.records import Job, StopReason, TaskRun
from eva_master.model.values import replace
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import Millis
from eva_wire.values.states import HOLDING, TERMINAL_RUN, JobState, RunState

_CAN = (JobState.PENDING, JobState.RUNNING)


def suspend(context: Context, event: SuspendRequested) -> None:
    """Suspend a job; a job that is suspended by a user, ending or over stays as it is."""
    job = _known(context, event)
    if job is None:
        return
    if job.state in _CAN and job.suspension is None:
        suspension = Suspension(Suspender.USER, context.now, who=event.owner)
        suspended = replace(job, suspension=suspension)
        if job.state is JobState.PENDING:
            suspended = _resting(suspended, context.now)
        context.put_job(suspended)
        for run in context.state.in_hand(job.id):
            if run.target is not None and run.state not in TERMINAL_RUN:
                context.put_run(replace(run, target=None, fetched=None))
            context.stop(context.state.runs[run.id], StopReason.SUSPEND)
    context.outbox.add(Reply(event.command, job.id, owner=event.owner))


def resume(context: Context, event: ResumeRequested) -> None:
    """Have a job go on that a user has suspended; any other stays as it is."""
    job = _known(context, event)
    if job is None:
        return
    if job.state in _CAN and job.suspension is not None:
        resumed = replace(job, suspension=None)
        if not context.state.suspended.partly(job.id):
            resumed = awake(context, resumed)
        context.put_job(resumed)
        context.plan_wanted = True
    context.outbox.add(Reply(event.command, job.id, owner=event.owner))


def _known(context: Context, event: SuspendRequested | ResumeRequested) -> Job | None:
    job = context.state.jobs.get(event.job)
    if job is None:
        error = NotFound(f"there is no job {event.job}", hint="see: eva ls --all")
        context.outbox.add(Reply(event.command, None, error, event.owner))
    return job


def by_plan(context: Context, entry: Suspend) -> None:
    """Suspend a task run on the order of a checked plan."""
    run = context.state.runs[entry.run]
    by = Suspender.POLICY if entry.job is None else Suspender.PRIORITY
    suspension: Suspension | None = Suspension(by, context.now, reason=entry.reason, job=entry.job)
    if run.state not in HOLDING:
        suspension = run.suspension  # the task run only goes on waiting
    context.put_run(
        replace(run, target=None, fetched=None, waiting_for=entry.reason, suspension=suspension)
    )


# -- time at rest --------------------------------------------------------------------------------


def at_rest(context: Context, job: Job) -> Job:
    """The job once none of its tasks runs any more: if it is suspended, it rests from now on."""
    suspended = job.suspension is not None or context.state.suspended.partly(job.id)
    return _resting(job, context.now) if suspended else job


def _resting(job: Job, now: Millis) -> Job:
    if job.started_ms is None or job.resting_ms is not None:
        return job
    return replace(job, resting_ms=now)


def awake(context: Context, job: Job) -> Job:
    """The job once it rests no more."""
    if job.resting_ms is None:
        return job
    rested = job.rested_ms + context.now - job.resting_ms
    return replace(job, rested_ms=rested, resting_ms=None)


# -- room ----------------------------------------------------------------------------------------


def waits_for_room(context: Context, run: TaskRun) -> bool:
    """Whether a task run waits for a suspending task run to leave its target.

    Files can be fetched meanwhile. A failed fetch is harmless: the start fetches them again.
    """
    if run.state is not RunState.WAITING or run.target is None:
        return False
    occupants = context.state.occupants(run.target)
    return any(
        other.state is RunState.STOPPING and other.stop is StopReason.SUSPEND for other in occupants
    )
