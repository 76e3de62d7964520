"""Jobs that are suspended: by users, who have them go on too, and by plans.

What is suspended is stopped like a task that moves, from a checkpoint, and has no target. It holds
no room, costs nothing, and its time at rest is no part of its duration. A job that a user has
suspended is in no snapshot; task runs that a plan has suspended wait for a plan like others.
"""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.model.actions import Reply
from eva_master.model.errors import NotFound
from eva_master.model.events import ResumeRequested, SuspendRequested
from eva_master.model.ids import Millis
from eva_master.model.planning.plan import Suspend
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.records import Job, StopReason, TaskRun
from eva_master.model.states import HOLDING, TERMINAL_RUN, JobState, RunState
from eva_master.model.values import replace

_CAN = (JobState.PENDING, JobState.RUNNING)


def suspend(context: Context, event: SuspendRequested) -> None:
    """Suspend a job; one that is suspended by a user, ending or over stays as it is."""
    job = _known(context, event)
    if job is None:
        return
    if job.state in _CAN and job.suspension is None:
        told = Suspension(Suspender.USER, context.now, who=event.owner)
        suspended = replace(job, suspension=told)
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
    """Suspend a task run as a plan says that was checked against the present."""
    run = context.state.runs[entry.run]
    by = Suspender.POLICY if entry.job is None else Suspender.PRIORITY
    told: Suspension | None = Suspension(by, context.now, reason=entry.reason, job=entry.job)
    if run.state not in HOLDING:
        told = run.suspension  # it only goes on waiting
    context.put_run(
        replace(run, target=None, fetched=None, waiting_for=entry.reason, suspension=told)
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
    """Whether a task run waits for somebody who is being suspended to leave its target.

    Its files can be fetched meanwhile. If that fails nothing is lost: its start fetches them.
    """
    if run.state is not RunState.WAITING or run.target is None:
        return False
    there = context.state.occupants(run.target)
    return any(it.state is RunState.STOPPING and it.stop is StopReason.SUSPEND for it in there)
