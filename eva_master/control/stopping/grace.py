"""How long a task has to stop: its own grace period, or less where others wait for its room.

A grace period is a promise to the task's user at the cost of those who wait. So operators cap it:
once for all, and more tightly where room was only lent, where an operator ends somebody's job, and
where the whole cluster ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.context import Context
from eva_master.control.settings import Settings
from eva_master.control.supply import spot
from eva_master.model.job import JobSpec
from eva_master.model.planning.suspension import Suspender
from eva_master.model.records import Job, StopReason, TaskRun
from eva_wire.values.durations import span
from eva_wire.values.states import RunState


def promised_ms(spec: JobSpec, settings: Settings) -> int:
    """The grace period of a job's tasks; jobs of before the limit may state a longer one."""
    return min(spec.restarts.grace_period_ms, settings.limits.grace_period_ms)


def stopping_ms(spec: JobSpec, settings: Settings) -> int:
    """The longest time from the order to stop until a job's checkpoints are stored.

    The time to store one is as the job states it, or as assumed.
    """
    checkpoint_ms = spec.restarts.checkpoint_ms
    stored_ms = settings.checkpoint_ms if checkpoint_ms is None else checkpoint_ms
    return promised_ms(spec, settings) + stored_ms


def stop_ms(context: Context, run: TaskRun) -> int:
    """The time that a task has which is being stopped, from SIGTERM to SIGKILL."""
    if run.stop is StopReason.LOST:
        return 0
    job, limits = context.state.jobs[run.job], context.settings.limits
    within = [promised_ms(job.spec, context.settings)]
    if job.stop_within_ms is not None:
        within.append(job.stop_within_ms)
    if _recalled(context, job, run):
        within.append(limits.recall_grace_ms)
    if context.closing_down:
        within.append(limits.shutdown_grace_ms)
    assert run.instance is not None
    return spot.in_time(context.state.instances[run.instance], min(within), context.now)


def _recalled(context: Context, job: Job, run: TaskRun) -> bool:
    """Whether a lending policy takes room back, or the job has any that is lent."""
    if not context.settings.partitions.home(job.partition).lends:
        return False
    by_policy = run.suspension is not None and run.suspension.by is Suspender.POLICY
    return by_policy or context.state.tally.lending.of(job.id) is not None


def shortened(context: Context, runs: Iterable[TaskRun]) -> None:
    """Have workers told at once of a stop that has less time from now on."""
    for run in runs:
        if run.state is RunState.STOPPING:
            context.outbox.forget_stop(run)
            context.touch_run(run)


def unlent(spec: JobSpec, settings: Settings) -> str:
    """Why a job is lent no room of others, who could not have it back in time; empty if it is."""
    longest = settings.limits.recall_grace_ms
    if promised_ms(spec, settings) <= longest:
        return ""
    return (
        f"its grace period of {span(spec.restarts.grace_period_ms)} is longer than the"
        f" {span(longest)} within which lenders have their room back (limits.recall_grace)"
    )
