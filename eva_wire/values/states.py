"""The states of jobs, task runs and instances, and the legal transitions between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from signal import Signals
from typing import TypeVar

from eva_wire.values.errors import IllegalTransition


class JobState(StrEnum):
    """The state of a job."""

    PENDING = "pending"
    """Accepted; none of its tasks runs."""
    RUNNING = "running"
    """At least one of its tasks runs, or of an array has run within the last minute."""
    ENDING = "ending"
    """The outcome is decided; tasks are being stopped."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """The state of a task run."""

    WAITING = "waiting"
    """Occupies no instance; its next attempt may have a target."""
    STARTING = "starting"
    """An attempt was sent to an instance, which has not yet reported that it runs."""
    RUNNING = "running"
    STOPPING = "stopping"
    """A stop of the attempt was requested and is not yet confirmed."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class InstanceState(StrEnum):
    """The state of an instance."""

    LAUNCHING = "launching"
    """Wanted and journalled; the cloud has been asked or is about to be."""
    UP = "up"
    """The cloud runs and bills it; its worker has not registered yet."""
    READY = "ready"
    """Its worker has registered."""
    TERMINATING = "terminating"
    """No longer wanted; the cloud has been asked or is about to be."""
    GONE = "gone"
    """Gone from the cloud, and no longer billed."""


_State = TypeVar("_State", JobState, RunState, InstanceState)

# States are parsed tens of times per event: by look-up, since calling an enum is slow.
JOB_STATES: Mapping[str, JobState] = {state.value: state for state in JobState}
COPY_STATES: Mapping[str, RunState] = {state.value: state for state in RunState}
INSTANCE_STATES: Mapping[str, InstanceState] = {state.value: state for state in InstanceState}

_JOB = {
    JobState.PENDING: {JobState.RUNNING, JobState.ENDING},
    JobState.RUNNING: {JobState.PENDING, JobState.ENDING},
    JobState.ENDING: {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED},
}
_COPY = {
    RunState.WAITING: {RunState.STARTING, RunState.FAILED, RunState.CANCELLED},
    RunState.STARTING: {
        RunState.RUNNING,
        RunState.STOPPING,
        RunState.WAITING,
        RunState.SUCCEEDED,
    },
    RunState.RUNNING: {RunState.STOPPING, RunState.WAITING, RunState.SUCCEEDED},
    RunState.STOPPING: {RunState.WAITING, RunState.SUCCEEDED},
    # A gang restarts as a whole: a member that had succeeded waits again when another failed.
    RunState.SUCCEEDED: {RunState.WAITING},
}
_INSTANCE = {
    InstanceState.LAUNCHING: {InstanceState.UP, InstanceState.TERMINATING, InstanceState.GONE},
    InstanceState.UP: {InstanceState.READY, InstanceState.TERMINATING, InstanceState.GONE},
    InstanceState.READY: {InstanceState.TERMINATING, InstanceState.GONE},
    InstanceState.TERMINATING: {InstanceState.GONE},
}


def _words(table: Mapping[_State, Collection[_State]]) -> Mapping[str, frozenset[str]]:
    return {
        source.value: frozenset(target.value for target in targets)
        for source, targets in table.items()
    }


# By their words, as histories have them, for the same reason.
_LEGAL: Mapping[type, Mapping[str, frozenset[str]]] = {
    JobState: _words(_JOB),
    RunState: _words(_COPY),
    InstanceState: _words(_INSTANCE),
}

History = tuple[tuple[str, int], ...]
"""States with the time each was entered, oldest first; bounded, see `moved`."""

_MOVES_KEPT = 16


def spent_ms(history: History, state: JobState | RunState | InstanceState, until: int) -> int:
    """Milliseconds spent in a state by a moment, in all stays that are on record."""
    ends = [*(at for _, at in history[1:]), until]
    stays = zip(history, ends, strict=True)
    return sum(max(0, end - at) for (entered, at), end in stays if entered == state)


def moved(
    entity: str, history: History, target: JobState | RunState | InstanceState, at: int
) -> History:
    """Extend a history by a transition.

    Args:
        entity: The thing that changes, for the error message.
        history: The states so far; the last one is the current state.
        target: The state to enter.
        at: Milliseconds since the epoch.

    Returns:
        The history with the transition at its end, cut to the last sixteen entries.

    Raises:
        IllegalTransition: The state table forbids the transition.
    """
    source, entered = history[-1][0], target.value
    if entered not in _LEGAL[type(target)].get(source, ()):
        raise IllegalTransition(entity, source, entered, history)
    return (*history[1 - _MOVES_KEPT :], (entered, at))


TERMINAL_JOB = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
"""Terminal states of a job, which never changes again."""
HOLDING = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})
"""States in which a task run occupies an instance."""
TERMINAL_RUN = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})
"""States in which a task run is not to be placed."""


def of_task(runs: Sequence[RunState]) -> RunState:
    """The state of a task by the states of all of its runs, its own one first.

    A task has succeeded with the first of them, and has not failed while another run is active.
    """
    going = [state for state in runs if state not in TERMINAL_RUN]
    for state in (RunState.SUCCEEDED, RunState.RUNNING):
        if state in runs:
            return state
    if not going and RunState.FAILED in runs:
        return RunState.FAILED
    return (*going, *runs)[0]


LIVE = frozenset({InstanceState.LAUNCHING, InstanceState.UP, InstanceState.READY})
"""States in which an instance may be given tasks."""

_SIGNALLED = 128
"""A shell's exit code for a signal is the signal's number plus this."""
_NAMES = {number.value: number.name for number in Signals}


def shell_code(code: int) -> int:
    """Convert a code in which a signal is negative, as workers and older journals have it."""
    return _SIGNALLED + min(-code, _SIGNALLED - 1) if code < 0 else code


def exit_text(code: int) -> str:
    """An exit code for people, with the signal that it stands for: ``137 (SIGKILL)``."""
    name = _NAMES.get(code - _SIGNALLED)
    return f"{code} ({name})" if name else str(code)


class MarketRule(StrEnum):
    """Restriction of the instances that may be bought for a job.

    Attributes:
        ANY: No restriction.
        APART: Any instance, not shared: interference would make the job late.
        SPOT: Spot instances alone: the job waits for one while there is time to lose.
        ON_DEMAND: On-demand instances alone: there is no time to lose.
        ALONE: On-demand instances alone, not shared: its neighbours leave, or the job does.
        STAYS: On-demand and not shared, like `ALONE`, but its neighbours leave: moving would make
            the job late.
    """

    ANY = "any"
    APART = "apart"
    SPOT = "spot"
    ON_DEMAND = "on_demand"
    ALONE = "alone"
    STAYS = "stays"

    @property
    def kept(self) -> bool:
        """Whether it is kept off spot instances, and stays off where it is."""
        return self in (MarketRule.ON_DEMAND, MarketRule.ALONE, MarketRule.STAYS)

    @property
    def alone(self) -> bool:
        """Whether it shares no instance."""
        return self in (MarketRule.APART, MarketRule.ALONE, MarketRule.STAYS)
