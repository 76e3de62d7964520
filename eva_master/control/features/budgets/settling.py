"""Jobs rest while their owner stands at the limit of a month, and go on by themselves."""

from __future__ import annotations

from eva_master.control import suspending
from eva_master.control.context import Context
from eva_master.control.features.budgets.memory import BudgetMemory
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.records import Job


def settle(context: Context, job: Job) -> None:
    """Suspend a job whose owner has come to the limit of a month, or have it go on."""
    memory = context.memory(BudgetMemory)
    if job.state not in suspending.CAN_REST:
        return
    reason = memory.stopped.get(job.spec.owner)
    if job.suspension is None:
        if reason is not None:
            suspension = Suspension(Suspender.MONTH, context.now, reason=reason)
            suspending.rest(context, job, suspension)
    elif job.suspension.by is Suspender.MONTH and reason is None:
        context.put_job(suspending.go_on(context, job))
