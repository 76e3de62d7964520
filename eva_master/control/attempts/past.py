"""How the attempts of a task run ended."""

from __future__ import annotations

from eva_master.model.records import PastAttempt, StopReason, TaskRun
from eva_master.model.values import replace
from eva_wire.values import states
from eva_wire.values.ids import Millis
from eva_wire.values.states import RunState

_PAST_ON_RECORD = 8
"""How many of a task run's attempts are on record with their ends."""
_STOPS = {
    StopReason.SUSPEND: "it was suspended",
    StopReason.GANG: "its gang starts over",
    StopReason.END: "its job ended",
    StopReason.REPLICA: "another run of its task counts",
    StopReason.LOST: "its worker lost it",
    StopReason.MERGE: "another fork merged in its place",
    StopReason.SECRET: "a secret that it uses was not set",
    StopReason.LATE: "it did not begin to run in time",
}


def with_past_attempt(old: TaskRun, run: TaskRun, now: Millis) -> TaskRun:
    """The record of a task run whose attempt is over, with how that ended.

    Args:
        old: The record while the attempt held its instance.
        run: The record now.
        now: When the master heard of it.
    """
    past = PastAttempt(old.attempt, old.attempt_started_ms, int(now), _end_of_attempt(old, run))
    return replace(run, past=(*run.past, past)[-_PAST_ON_RECORD:])


def _end_of_attempt(old: TaskRun, run: TaskRun) -> str:
    if run.state is RunState.SUCCEEDED:
        return "it succeeded"
    if old.stop is StopReason.MOVE:
        return f"it moved to {run.target}" if run.target else "it was moved"
    if old.stop is not None:
        return _STOPS[old.stop]
    if run.lost == old.attempt:
        return "its instance went away"
    if run.exit_code is None:
        return "it ended before its program ran"
    return f"it exited with code {states.exit_text(run.exit_code)}"
