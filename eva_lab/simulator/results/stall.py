"""Explains why a simulation does not end."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.control.state.store import State
from eva_master.model.records import TaskRun
from eva_wire.values.errors import SimulationStalled
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_RUN, RunState

_LISTED = 5
"""How many of the jobs that have not ended are named."""
_HOUR_MS = 3_600_000


def stalled(
    state: State,
    title_of: Callable[[str], str],
    *,
    total: int,
    elapsed_ms: int,
    date: str,
) -> SimulationStalled:
    """Make the error of a simulation in which nothing happens any more.

    Args:
        state: The state of the simulated master.
        title_of: Returns the name of a job by the command that submitted it.
        total: How many jobs the simulation has.
        elapsed_ms: The virtual time since the beginning.
        date: The virtual date, empty where times are no dates.
    """
    unfinished = total - state.counters.jobs + len(state.active)
    noun, verb = "job" if total == 1 else "jobs", "has" if unfinished == 1 else "have"
    message = (
        f"nothing happens any more {_time(elapsed_ms, date)}, "
        f"and {unfinished} of {total} {noun} {verb} not ended"
    )
    active = list(state.active)
    hints = [
        f"{title_of(state.jobs[job].command)} {_occupation(state, job)}" for job in active[:_LISTED]
    ]
    if len(active) > _LISTED:
        hints.append(f"{len(active) - _LISTED} more jobs are like these")
    if absent := total - state.counters.jobs:
        hints.append(f"{absent} {'job was' if absent == 1 else 'jobs were'} never submitted")
    if not unfinished:
        names = ", ".join(list(state.live)[:_LISTED])
        hints.append(f"these instances do not end: {names}")
    return SimulationStalled(message, hint="; ".join(hints))


def _time(elapsed_ms: int, date: str) -> str:
    hours, rest = divmod(elapsed_ms, _HOUR_MS)
    after = f"after {hours}h {rest // 60_000}m of virtual time"
    return f"{after} ({date})" if date else after


def _occupation(state: State, job: JobId) -> str:
    """State of a job, by its first task that does not run."""
    if others := list(state.dependencies.left(job)):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        return f"waits for {others[0]}{more} to succeed"
    runs = [run for run in state.members(job) if run.state not in TERMINAL_RUN]
    run = next((member for member in runs if member.state is not RunState.RUNNING), None)
    if run is None:
        return "runs and does not end"
    several = "" if len(runs) == 1 else f"(task {run.index}) "
    return several + _wait(run)


def _wait(run: TaskRun) -> str:
    if run.state is not RunState.WAITING:
        return f"is {run.state.value} on {run.instance}"
    if run.waiting_for:
        return f"waits: {run.waiting_for}"
    if run.target is not None:
        return f"waits for instance {run.target}"
    return "waits for a place"
