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

CAN_REST = (JobState.PENDING, JobState.RUNNING)
"""States of jobs that can be suspended."""


def suspend(context: Context, event: SuspendRequested) -> None:
    """Suspend a job; a job that is suspended by a user, ending or over stays as it is.

    One that rests at its owner's limit does not go on by itself any more.
    """
    job = known(context, event)
    if job is None:
        return
    rests = job.suspension is not None and job.suspension.by is not Suspender.MONTH
    if job.state in CAN_REST and not rests:
        rest(context, job, Suspension(Suspender.USER, context.now, who=event.owner))
    context.outbox.add(Reply(event.command, job.id, owner=event.owner))


def rest(context: Context, job: Job, suspension: Suspension) -> None:
    """Have all tasks of a job stop from checkpoints, and no plan be about it.

    Args:
        context: The present one.
        job: Pending or running; where it is suspended already, the reason changes.
        suspension: Why.
    """
    suspended = replace(job, suspension=suspension)
    if job.state is JobState.PENDING:
        suspended = _resting(suspended, context.now)
    context.put_job(suspended)
    for run in context.state.in_hand(job.id):
        if run.target is not None and run.state not in TERMINAL_RUN:
            context.put_run(replace(run, target=None, fetched=None))
        context.stop(context.state.runs[run.id], StopReason.SUSPEND)


def go_on(context: Context, job: Job) -> Job:
    """The job once it is suspended no more, to be put on record; a plan is wanted for it."""
    context.plan_wanted = True
    resumed = replace(job, suspension=None)
    rests = context.state.suspended.partly(job.id) or job.missing_secrets
    return resumed if rests else awake(context, resumed)


def known(context: Context, event: SuspendRequested | ResumeRequested) -> Job | None:
    """The job of a command; `None`, and the user is told, if there is none."""
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
    """The job once none of its tasks runs any more: if it is suspended, it rests from now on.

    A job that lacks a secret rests, too: its user can have it go on, and no plan.
    """
    suspended = job.suspension is not None or context.state.suspended.partly(job.id)
    return _resting(job, context.now) if suspended or job.missing_secrets else job


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
