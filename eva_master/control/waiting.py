"""Jobs that wait for others to succeed, or to end: they arrive, or end without ever having run."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.context import Context
from eva_master.control.planning import arriving
from eva_master.model.job import JobSpec
from eva_master.model.records import Ended, Job, Outcome
from eva_master.model.values import replace
from eva_wire.values.errors import InvalidJob
from eva_wire.values.ids import JobId
from eva_wire.values.states import JobState

_EXIT_CODES = {Outcome.FAILED: 1, Outcome.CANCELLED: 130}


def refusal(context: Context, spec: JobSpec, ended: Iterable[Ended]) -> InvalidJob | None:
    """The reason for which a job cannot wait for the jobs that it names; `None` if it can.

    Jobs of other owners are reported like jobs that do not exist.
    """
    ended_jobs = {end.job for end in ended}
    for name in spec.stage.depends_on:
        job = context.state.jobs.get(name)
        if (job.spec.owner != spec.owner) if job is not None else name not in ended_jobs:
            return InvalidJob(
                f"there is no job {name} of yours, after which it is to run",
                hint="submit it again; `eva ls --all` shows all jobs",
            )
    return None


def in_vain(context: Context, job: JobId, ended: Iterable[Ended]) -> None:
    """End a job that was just added if one that it depends on ended long ago without success."""
    record = context.state.jobs[job]
    succeed = set(record.spec.stage.depends_on) - set(record.spec.stage.only_ended)
    for end in ended:
        if end.job in succeed and end.outcome is not Outcome.SUCCEEDED:
            give_up(context, record, end)
            return


def settle(context: Context, job: Job) -> None:
    """Have a waiting job arrive, or begin to end, once its wait is over.

    The job arrives as if it had just been submitted.
    """
    waiting = context.state.dependencies
    if (end := waiting.unmet(job.id)) is not None:
        give_up(context, job, end)
    elif not waiting.left(job.id):
        released = replace(job, released_ms=context.now)
        context.put_job(released)
        arriving.arrive(context, released)


def give_up(context: Context, job: Job, end: Ended) -> None:
    """Begin to end a job for one that it depends on and that did not succeed."""
    ending = job.to(JobState.ENDING, context.now)
    context.put_job(
        replace(
            ending,
            outcome=end.outcome,
            exit_code=_EXIT_CODES[end.outcome],
            reason=end.words,
            unmet=end,
        )
    )
