"""Arrays of which tasks have failed for good: they go on, stop, or have come to their end."""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.model.job import FIRST_TO_END, OnFailure
from eva_master.model.records import Failure, Job, Outcome
from eva_master.model.values import replace
from eva_wire.values.states import JobState, RunState


def task_failed(context: Context, job: Job, failure: Failure) -> None:
    """Note that a task of an array has failed for good, with all of its runs.

    An array that goes on is not converged as a whole: nothing follows for its other tasks.

    Args:
        context: The present one.
        job: The array. Its task's runs are on record as over.
        failure: How the task failed.
    """
    if job.spec.failing.on_failure is OnFailure.STOP:
        context.put_job(with_failure(context, job, failure, failure.reason))
        return
    job = replace(job, first_failure=job.first_failure or failure, reason=failure.reason)
    tasks = context.state.tasks[job.id]
    failed, succeeded = tasks.failed, tasks.counts[RunState.SUCCEEDED]
    cautious = job.spec.failing.on_failure is OnFailure.CAUTIOUS and not succeeded
    if cautious and FIRST_TO_END <= failed < job.spec.size:
        assert job.first_failure is not None
        context.put_job(with_failure(context, job, job.first_failure, _hopeless(job, failed)))
    else:
        context.state.put_job(job)


def all_over(context: Context, job: Job) -> bool:
    """Whether every task of an array has ended for good, and some of them without success."""
    tasks = context.state.tasks[job.id]
    failed = tasks.failed
    return failed > 0 and failed + tasks.counts[RunState.SUCCEEDED] == job.spec.size


def end(context: Context, job: Job) -> None:
    """Begin to end an array of which every task is over and some have failed."""
    failed, size = context.state.tasks[job.id].failed, job.spec.size
    first = job.first_failure or Failure(None, job.reason)
    reason = first.reason
    if size > 1:
        reason = f"{failed:,} of {size:,} tasks failed; the first: {first.reason}"
    context.put_job(with_failure(context, job, first, reason))


def with_failure(context: Context, job: Job, failure: Failure, reason: str) -> Job:
    """The job as it begins to end for a failure, whose exit code it takes over."""
    return replace(
        job.to(JobState.ENDING, context.now),
        outcome=Outcome.FAILED,
        exit_code=1 if failure.exit_code is None else failure.exit_code,
        reason=reason,
    )


def _hopeless(job: Job, failed: int) -> str:
    """Why an array stops that would go on if it were likely that another task succeeds."""
    assert job.first_failure is not None
    return (
        f"the first {failed} tasks that ended all failed, so the array was stopped"
        f" (`on_failure: continue` has it go on); the first: {job.first_failure.reason}"
    )
