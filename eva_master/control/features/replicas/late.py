"""When late tasks are looked for."""

from __future__ import annotations

from eva_master.control.measure import remaining
from eva_master.control.turn.rounds import RoundMemory
from eva_master.control.turn.turn import Turn
from eva_master.packing.extra_runs.stragglers import due_ms
from eva_wire.values.ids import MILLION, JobId
from eva_wire.values.states import JobState, RunState

LOOK_MS = 5_000
"""Least time from one check for an array's late tasks to the next."""
_LOOKS_PER_TIME = 8
"""How often late tasks are looked at in the time after which tasks are late."""
_LONGEST_LOOK_MS = 60_000


def look_for_late(turn: Turn, name: JobId) -> int | None:
    """Ask for a plan if a task of an array may be late.

    Returns:
        Milliseconds until the next look; `None` if none is needed.
    """
    job = turn.state.jobs.get(name)
    if job is None or job.state is not JobState.RUNNING:
        return None
    runs = [
        run
        for run in turn.state.in_hand(name)
        if run.state is RunState.RUNNING and not run.extra and not run.replicas
    ]
    if not runs:
        return None
    wait = _LONGEST_LOOK_MS
    for ran in remaining.run_times(turn.state, job, runs).values():
        if ran.expected is None:
            continue
        due = due_ms(ran.expected)
        remaining_ms = (due - ran.ms(turn.now)) * MILLION // max(1, ran.pace_ppm)
        if remaining_ms <= 0 and turn.state.tasks.replicas_left(name):
            turn.plan_wanted = True
            turn.memory(RoundMemory).overdue.add(turn.settings.partitions.home(job.partition).name)
        wait = min(wait, remaining_ms if remaining_ms > 0 else due // _LOOKS_PER_TIME)
    return max(LOOK_MS, wait)
