"""Jobs stop at their caps, while the rest still pays for the stop."""

from __future__ import annotations

from eva_master.control import suspending
from eva_master.control.context import Context
from eva_master.control.features.capping.memory import CappingMemory
from eva_master.control.features.capping.orders import stands_at_cap
from eva_master.control.features.capping.spending import spending
from eva_master.control.stopping.grace import stopping_ms
from eva_master.model.arithmetic.money import dollars
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.records import Instance, Job
from eva_master.model.values import replace
from eva_wire.values.ids import Millis


def settle(context: Context, job: Job) -> None:
    """Suspend a job whose cap is reached, and note that most of one is spent."""
    memory = context.memory(CappingMemory)
    if job.id in memory.reached:
        memory.reached.discard(job.id)
        if job.state in suspending.CAN_REST and not stands_at_cap(job):
            counted = spending(context.state, context.settings, job, context.now)
            assert counted is not None
            reason = f"{dollars(counted.spent)} of {dollars(job.max_cost or 0)} are spent"
            suspending.rest(context, job, Suspension(Suspender.COST, context.now, reason=reason))
    elif job.id in memory.told:
        memory.told.discard(job.id)
        if not job.cap_told:
            context.put_job(replace(job, cap_told=True))


def silence_ms(context: Context, instance: Instance, since: Millis) -> int:
    """The time for which a worker may be silent before its instance is terminated.

    A silent worker does not hear that tasks are to stop. Where all of its tasks are to stop for
    their cost, the instance goes once they have had the time of a stop, which is paid for.

    Args:
        context: The present one.
        instance: The instance.
        since: When the worker fell silent.
    """
    limit = context.settings.lost_worker_ms
    jobs = [context.state.jobs[name] for name in context.state.company.jobs_on(instance.id)]
    ends = []
    for job in jobs:
        if job.suspension is None or job.suspension.by not in (Suspender.COST, Suspender.MONTH):
            return limit
        ends.append(job.suspension.since_ms + stopping_ms(job.spec, context.settings))
    return min(limit, max(0, max(ends) - since)) if ends else limit
