"""Users have jobs rest and go on, those that stand at their caps once these are raised."""

from __future__ import annotations

from eva_master.control import suspending
from eva_master.control.context import Context
from eva_master.control.measure import ledger
from eva_master.model.actions import Reply
from eva_master.model.arithmetic.money import dollars, next_cap
from eva_master.model.events import ResumeRequested, SuspendRequested
from eva_master.model.planning.suspension import Suspender
from eva_master.model.records import Job
from eva_master.model.values import replace
from eva_wire.values.errors import CostCapReached
from eva_wire.values.ids import micro_usd


def follow(context: Context, event: SuspendRequested | ResumeRequested) -> None:
    """Suspend a job or have one go on, as a user says."""
    if isinstance(event, SuspendRequested):
        suspending.suspend(context, event)
    else:
        _resume(context, event)


def _resume(context: Context, event: ResumeRequested) -> None:
    """Have a job go on that a user, or its cost, has suspended; its cap may be raised with it."""
    job = suspending.known(context, event)
    if job is None:
        return
    if job.state in suspending.CAN_REST:
        try:
            resumed = _with_cap(context, job, event.max_cost)
        except CostCapReached as error:
            context.outbox.add(Reply(event.command, None, error, event.owner))
            return
        if job.suspension is not None:
            resumed = suspending.go_on(context, resumed)
        if resumed is not job:
            context.put_job(resumed)
    context.outbox.add(Reply(event.command, job.id, owner=event.owner))


def _with_cap(context: Context, job: Job, max_cost: int | None) -> Job:
    """A job with the cap that it is to go on with.

    Args:
        context: The present one.
        job: The job.
        max_cost: The new cap in micro-dollars; `None` to leave it as it is.

    Raises:
        CostCapReached: The job stands at its cap, and no higher one is given; or its owner stands
            at the limit of a month.
    """
    if job.suspension is not None and job.suspension.by is Suspender.MONTH:
        raise CostCapReached(
            f"{job.id} is {job.suspension.words}",
            hint="it goes on by itself then, or once an operator raises limits.max_cost",
        )
    spent = micro_usd(ledger.job_account(context.state, job.id, context.now).charged)
    if max_cost is None:
        if stands_at_cap(job):
            raise CostCapReached(
                f"{job.id} stands at its max_cost: {dollars(spent)} of"
                f" {dollars(job.max_cost or 0)} are spent",
                hint=f"eva resume {job.id} --max-cost {next_cap(job.max_cost or 0)}",
            )
        return job
    if max_cost <= spent:
        raise CostCapReached(
            f"{job.id} has cost {dollars(spent)} already, which is no less than"
            f" {dollars(max_cost)}",
            hint="name a higher --max-cost",
        )
    return replace(job, cap=max_cost, cap_told=False)


def stands_at_cap(job: Job) -> bool:
    """Whether a job is suspended since it has come to its cap."""
    return job.suspension is not None and job.suspension.by is Suspender.COST
