"""Exits that nobody asked for: whether they count, and when the job is tried again."""

from __future__ import annotations

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.model import states
from eva_master.model.events import RunReport
from eva_master.model.ids import Millis
from eva_master.model.records import Failure, Job, Outcome
from eva_master.model.states import JobState
from eva_master.model.values import replace


def described(report: RunReport) -> Failure:
    """The failure that a worker's report of an exit is, in words for the user."""
    code = report.exit_code
    if report.never_started:
        what = "could not be started"
    else:
        what = "exited" if code is None else f"exited with code {states.exit_text(code)}"
    why = f": {report.message}" if report.message else ""
    return Failure(code, f"task {report.run} {what}{why}")


def note(context: Context, job: Job, failure: Failure) -> None:
    """Keep a gang's failure until all members' ends are known, and with them what it comes of."""
    if job.failure is None:
        context.put_job(replace(job, failure=failure, reason=failure.reason))


def judge(context: Context, job: Job) -> None:
    """Count the failure of a gang's attempt that is over.

    Not if a member was lost with its instance: the others then fail for want of it, often before
    the cloud says so.
    """
    assert job.failure is not None
    judged = replace(job, failure=None)
    if any(run.lost == job.attempt for run in context.state.members(job.id)):
        context.put_job(judged)
    else:
        count(context, judged, job.failure)


def count(context: Context, job: Job, failure: Failure) -> None:
    """Have the job tried again after a while, or fail it when it has been tried enough."""
    failures, code, reason = job.failures + 1, failure.exit_code, failure.reason
    if failures > job.spec.retries:
        context.put_job(
            replace(
                job.to(JobState.ENDING, context.now),
                failures=failures,
                outcome=Outcome.FAILED,
                exit_code=1 if code is None else code,
                reason=f"{reason}; no retries left" if job.spec.retries else reason,
            )
        )
        return
    wait = min(context.settings.backoff_ms << (failures - 1), context.settings.backoff_limit_ms)
    not_before = Millis(context.now + wait)
    context.put_job(replace(job, failures=failures, not_before_ms=not_before, reason=reason))
    context.alarms.at(not_before, Alarm.job(job.id))
