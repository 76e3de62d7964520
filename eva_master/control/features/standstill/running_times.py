"""Time in which a task stood still with its machine, which is no part of its running time.

A task stands still while its machine sleeps or is paused. Only its agent knows: with each report it
tells for how long the attempt has run by a clock that stands still, too.
"""

from __future__ import annotations

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.standstill.memory import StandstillMemory
from eva_master.model.actions import SyncWorker
from eva_master.model.events import RunReport
from eva_master.model.records import Job, TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import Millis
from eva_wire.values.states import RunState

_WORTH_NOTING_MS = 5_000
"""A shorter time may be the way of a report."""
_ANSWER_MS = 10_000
"""How long an agent is given to answer before its job counts as having run all the time."""
_PATIENCE_MS = 60_000
"""How long nothing is given up for its silence once the master's own machine is awake again."""


def follow(context: Context, run: TaskRun, report: RunReport) -> TaskRun:
    """Take in for how long an attempt has run by its agent's clock.

    Args:
        context: The present one.
        run: The attempt's task run, which runs.
        report: The agent's.

    Returns:
        The task run as it is on record now. If it stood still, its last transition is at the time
        since which it would have run without that: whatever is reckoned from it leaves that out.
    """
    if report.ran_ms is None or run.started_ms is None or run.state is not RunState.RUNNING:
        return run
    memory = context.memory(StandstillMemory)
    before_ms = memory.heard.get(run.id, run.started_ms)
    memory.heard[run.id] = context.now
    if run.job in memory.asked:
        context.touch_job(run.job)
    was = run.since_ms
    since = Millis(min(max(run.started_ms, context.now - report.ran_ms), context.now))
    if abs(since - was) < _WORTH_NOTING_MS:
        return run
    _credit(context, run, since - was, before_ms)
    context.put_run(replace(run, history=(*run.history[:-1], (run.history[-1][0], since))))
    return context.state.runs[run.id]


def _credit(context: Context, run: TaskRun, stood_ms: int, since_ms: Millis) -> None:
    """Add the time in which no task of a job ran to its time of rest.

    Args:
        context: The state of this turn.
        run: The task run that stood still.
        stood_ms: The time; negative if an earlier report was delayed.
        since_ms: The time before the standstill.
    """
    job = context.state.jobs[run.job]
    if job.spec.failing.max_duration_ms is None or job.started_ms is None:
        return
    beside = [run for run in context.state.in_hand(job.id) if run.state is RunState.RUNNING]
    if len({run.instance for run in beside}) > 1 and not job.is_gang:
        return  # others ran meanwhile
    more_ms = stood_ms
    if len(beside) > 1:  # they stood still together, and the first report was credited
        at, credited_ms = context.memory(StandstillMemory).credited.get(job.id, (Millis(-1), 0))
        more_ms = max(0, stood_ms - (credited_ms if at > since_ms else 0))
        context.memory(StandstillMemory).credited[job.id] = context.now, stood_ms
    rested_ms = max(0, job.rested_ms + more_ms)
    context.put_job(replace(job, rested_ms=rested_ms))
    limit = Millis(job.started_ms + rested_ms + job.spec.failing.max_duration_ms)
    context.alarms.at(limit, Alarm.job(job.id))


def slept(context: Context, slept_ms: int) -> None:
    """Give agents time, if this machine slept: they slept with it, or missed it."""
    if slept_ms:
        context.memory(StandstillMemory).patient_until = Millis(context.now + _PATIENCE_MS)


def outlasted(context: Context, job: Job) -> bool:
    """Whether a job has certainly run for its `max_duration`.

    If it has by the loop's time, the agents are asked first: their machines may have slept. Agents
    that never report running times are not waited for.
    """
    limit, memory = job.spec.failing.max_duration_ms, context.memory(StandstillMemory)
    if limit is None or job.started_ms is None:
        return False
    if job.ran_ms(context.now) < limit:
        memory.asked.pop(job.id, None)
        return False
    runs = [run for run in context.state.in_hand(job.id) if run.state is RunState.RUNNING]
    asked_ms = memory.asked.setdefault(job.id, context.now)
    late = [run for run in runs if memory.heard.get(run.id, context.now) < asked_ms]
    if not late or context.now - asked_ms >= _ANSWER_MS:
        return True
    if asked_ms == context.now:
        for place in {run.instance for run in late if run.instance is not None}:
            context.outbox.add(SyncWorker(place))
    context.alarms.at(Millis(asked_ms + _ANSWER_MS), Alarm.job(job.id))
    return False
