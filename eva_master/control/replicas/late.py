"""When late tasks are looked for."""

from __future__ import annotations

from eva_master.control.alarms import Alarm
from eva_master.control.context import LATE_LOOK_MS, Context
from eva_master.control.measure import remaining
from eva_master.model.ids import MILLION, JobId, Millis
from eva_master.model.states import JobState, RunState
from eva_master.packing.stragglers import due_ms

_LOOKS_PER_TIME = 8
"""How often late tasks are looked at in the time after which tasks are late."""
_LONGEST_LOOK_MS = 60_000


def look_for_late(context: Context, name: JobId) -> None:
    """Ask for a plan if a task of an array may be late, and set the time of the next look."""
    context.looks_for_late.discard(name)
    job = context.state.jobs.get(name)
    if job is None or job.state is not JobState.RUNNING:
        return
    runs = [
        run
        for run in context.state.in_hand(name)
        if run.state is RunState.RUNNING and not run.extra and not run.replicas
    ]
    if not runs:
        return
    wait = _LONGEST_LOOK_MS
    for ran in remaining.run_times(context.state, job, runs).values():
        if ran.expected is None:
            continue
        due = due_ms(ran.expected)
        remaining_ms = (due - ran.ms(context.now)) * MILLION // max(1, ran.pace_ppm)
        if remaining_ms <= 0 and context.state.replicas_left(name):
            context.plan_wanted = True
            context.late.add(context.settings.partitions.home(job.partition).name)
        wait = min(wait, remaining_ms if remaining_ms > 0 else due // _LOOKS_PER_TIME)
    context.looks_for_late.add(name)
    context.alarms.at(Millis(context.now + max(LATE_LOOK_MS, wait)), Alarm.late(name))
