"""Exits that nobody asked for: whether they count, and when the job is tried again."""

from __future__ import annotations

import re
import signal

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.arrays import failing
from eva_master.control.features.failures import exit_rules
from eva_master.control.features.failures.memory import FailureMemory
from eva_master.control.features.replicas import settling
from eva_master.control.supply import availability
from eva_master.model.events import RunReport
from eva_master.model.records import Failure, Job, TaskRun
from eva_master.model.values import replace
from eva_wire.values import states
from eva_wire.values.bounds import ASKS_FOR_RETRY
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, run_id
from eva_wire.values.states import RunState

_SOON_MS = 30_000
"""A program that fails within this time of its start has done nothing yet."""
_FROM_OUTSIDE = frozenset(
    code
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
    for code in (-number, states.shell_code(-number))
)
"""Exit codes for signals that others send; with the rest of them a program has crashed."""
_EXCUSED_WAIT_LIMIT_MS = 60_000
_FAULTS_OF_AN_INSTANCE = 5
"""So many failures in a row that are an instance's fault, and it is given back."""
_DOUBLINGS = 32
_MESSAGE_CHARACTERS = 600
_BY_CHANCE = re.compile(r"\w*\d\w*|\btmp\w+|\b[0-9a-fA-F]{4,}\b")
"""Numbers, addresses and made-up names, which differ each time."""
_COMPARED_CHARACTERS = 200


def observed(context: Context, run: TaskRun, report: RunReport) -> Failure:
    """The failure that a report of an exit tells of, and whether it was seen before.

    Args:
        context: The present one.
        run: The task run, as it was when the report arrived.
        report: Of an exit that was not requested.
    """
    repeated = not report.blameless and _repeats(context, run, report)
    failure = described(report)
    return replace(failure, blameless=report.blameless, repeated=repeated)


def late(context: Context, run: TaskRun) -> Failure:
    """The failure of a task run that was stopped since it had not begun to run for too long."""
    limit = context.settings.start_timeout_ms
    return Failure(
        None,
        f"task {run.id} had not begun to run {limit / 1000:g} s after its start on {run.instance};"
        " its log says how far it had come",
    )


def described(report: RunReport) -> Failure:
    """The failure that a worker's report of an exit is, in words for the user."""
    code = report.exit_code
    if report.never_started:
        what = "could not be started"
    else:
        what = "exited" if code is None else f"exited with code {states.exit_text(code)}"
    message = _bounded(report.message)
    why = f": {message}" if message else ""
    return Failure(code, f"task {report.run} {what}{why}")


def note(context: Context, job: Job, failure: Failure) -> None:
    """Keep a gang's failure until all members' ends are known, and with them what it comes of.

    If the instance of one is to blame, the others failed for want of it.
    """
    if job.failure is None or (failure.blameless and not job.failure.blameless):
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
    """Have a gang tried again after a while, or fail it when it has been tried enough."""
    first = run_id(job.id, 0)
    if failure.blameless:
        wait, reason = _excused(context, job.id, first, failure)
    else:
        _charged(context, job.id, first)
        job = replace(job, failures=job.failures + 1)
        if (why := exit_rules.final(job.spec, job.failures, failure)) is not None:
            context.put_job(failing.with_failure(context, job, failure, why))
            return
        wait, reason = _backoff_ms(context, job.failures), failure.reason
    not_before = Millis(context.now + wait)
    job = _charged_for(context, job, context.state.runs[first], wait)
    context.put_job(replace(job, reason=reason, not_before_ms=not_before))
    context.alarms.at(not_before, Alarm.job(job.id))


def count_task(context: Context, run: TaskRun, failure: Failure) -> None:
    """Schedule another try of one task of an array, or fail it for good."""
    job = context.state.jobs[run.job]
    if failure.blameless:
        wait, reason = _excused(context, job.id, run.id, failure)
    else:
        _charged(context, job.id, run.id)
        job = replace(job, failures=job.failures + 1)
        run = replace(run, failures=run.failures + 1)
        if (why := exit_rules.final(job.spec, run.failures, failure)) is not None:
            over = run.to(RunState.FAILED, context.now)
            context.put_run(replace(over, target=None, fetched=None, reason=why))
            # Other forks never wait for a place, so they do not continue without their own run.
            if settling.goes_on(context, run) and (run.extra or not job.spec.forked):
                context.state.put_job(replace(job, reason=why))
            else:
                failing.task_failed(context, job, replace(failure, reason=why))
                context.plan_wanted = True  # its place is free
            return
        wait, reason = _backoff_ms(context, run.failures), failure.reason
    not_before = Millis(context.now + wait)
    context.put_run(replace(run, reason=reason, not_before_ms=not_before))
    # Other tasks are unaffected, so the job need not be converged.
    tasks_to_go = max(
        1,
        job.spec.size - context.state.tasks.succeeded(job.id) - context.state.tasks.failed(job.id),
    )
    context.state.put_job(
        replace(_charged_for(context, job, run, wait // tasks_to_go), reason=reason)
    )
    context.alarms.at(not_before, Alarm.run(run.id))


def _charged_for(context: Context, job: Job, run: TaskRun, wait: int) -> Job:
    """The job with the time that a failed attempt cost it, and that it waits for the next one."""
    spoiled = max(0, context.now - run.attempt_started_ms) if run.attempt_started_ms else 0
    return replace(job, held_ms=job.held_ms + wait, spoiled_ms=job.spoiled_ms + spoiled)


def _backoff_ms(context: Context, failures: int) -> int:
    settings = context.settings
    return min(settings.backoff_ms << min(failures - 1, _DOUBLINGS), settings.backoff_limit_ms)


def blame(
    context: Context, instance: InstanceId, job: JobId, *, blameless: bool, why: str = ""
) -> None:
    """Count failures that an instance caused; one that keeps failing tasks is terminated.

    Args:
        context: The state of this turn.
        instance: The instance of the failure.
        job: The job of the task.
        blameless: Whether the instance was to blame, not the task.
        why: The last failure in words.
    """
    faults = context.memory(FailureMemory).faults
    if not blameless:
        faults.pop(instance, None)
        return
    faults.setdefault(instance, []).append(job)
    busy = any(run.state is RunState.RUNNING for run in context.state.occupants(instance))
    if len(faults[instance]) >= _FAULTS_OF_AN_INSTANCE and not busy:
        jobs = set(faults.pop(instance))
        reason = f"{_FAULTS_OF_AN_INSTANCE} tasks in a row could not run there"
        useless = context.state.instances[instance]
        availability.gave_up(context, useless, jobs, f"{reason}: {why}")
        context.dismiss(context.state.instances[instance], reason)


def _excused(context: Context, job: JobId, run: RunId, failure: Failure) -> tuple[int, str]:
    """The wait after a failure that does not use up the retries, and the reason for it."""
    excused = context.memory(FailureMemory).excused.setdefault(job, {})
    times = excused[run] = excused.get(run, 0) + 1
    wait = min(context.settings.backoff_ms << min(times - 1, 10), _EXCUSED_WAIT_LIMIT_MS)
    return wait, f"{failure.reason}; that is not the program's fault and does not count"


def _charged(context: Context, job: JobId, run: RunId) -> None:
    """A failure that counts ends a row of those that do not."""
    context.memory(FailureMemory).excused.get(job, {}).pop(run, None)


def _repeats(context: Context, run: TaskRun, report: RunReport) -> bool:
    """Whether a task run failed soon after its start as it did the last time, and for certain."""
    early = context.memory(FailureMemory).early.setdefault(run.job, {})
    code, ran_ms = report.exit_code, context.now - _began_ms(run)
    if ran_ms > _SOON_MS or code in _FROM_OUTSIDE or code == ASKS_FOR_RETRY:
        early.pop(run.id, None)
        return False
    # Where a long message begins depends on the length of what follows.
    said = _BY_CHANCE.sub("#", _bounded(report.message))[-_COMPARED_CHARACTERS:]
    way = hash((code, said, run.generation))
    repeated = early.get(run.id) == way
    early[run.id] = way
    return repeated and exit_rules.is_certain(code, report.message)


def _bounded(message: str) -> str:
    """A worker's message, as text that is fit to be kept and shown."""
    cut = message[:_MESSAGE_CHARACTERS]
    return "".join(character if character.isprintable() else " " for character in cut)


def _began_ms(run: TaskRun) -> int:
    """When an attempt began to run, or to be prepared if it never ran."""
    for state, at in reversed(run.history):
        if state in (RunState.RUNNING.value, RunState.STARTING.value):
            return at
    return 0
