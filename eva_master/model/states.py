"""The states of jobs, task runs and instances, and which moves between them are legal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TypeVar

from eva_master.model.errors import IllegalTransition


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    """Accepted; no task runs."""
    RUNNING = "running"
    """At least one task runs."""
    ENDING = "ending"
    """The outcome is decided; tasks are being stopped."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """Where a task run of a task is in its life."""

    WAITING = "waiting"
    """Holds nothing on any instance; its next attempt may have a target."""
    STARTING = "starting"
    """An attempt was handed to an instance, which has not said yet that it runs."""
    RUNNING = "running"
    STOPPING = "stopping"
    """The attempt's stop was requested and is not confirmed yet."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class InstanceState(StrEnum):
    """Where an instance is in its life."""

    LAUNCHING = "launching"
    """Wanted and written down; the cloud has been asked or is about to be."""
    UP = "up"
    """The cloud says that it runs (and bills it); its worker has not registered yet."""
    READY = "ready"
    """Its worker has registered."""
    TERMINATING = "terminating"
    """No longer wanted; the cloud has been asked or is about to be."""
    GONE = "gone"
    """The cloud says that it exists no longer."""


_State = TypeVar("_State", JobState, RunState, InstanceState)

# Told from their words tens of times per event: by look-up, since calling an enum is slow.
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
    # A gang restarts whole: a member that was done goes back when another one failed.
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
        source.value: frozenset(it.value for it in targets) for source, targets in table.items()
    }


# In words, as histories have them, for the same reason.
_LEGAL: Mapping[type, Mapping[str, frozenset[str]]] = {
    JobState: _words(_JOB),
    RunState: _words(_COPY),
    InstanceState: _words(_INSTANCE),
}

History = tuple[tuple[str, int], ...]
"""States with the time each was entered, oldest first; bounded, see `moved`."""

_KEPT = 16


def moved(
    entity: str, history: History, target: JobState | RunState | InstanceState, at: int
) -> History:
    """Extend a history by a move.

    Args:
        entity: Who moves, for the error message.
        history: The states so far; the last one is the current state.
        target: The state to enter.
        at: Milliseconds since the epoch.

    Returns:
        The history with the move at its end, cut to the last sixteen.

    Raises:
        IllegalTransition: The state table forbids the move.
    """
    source, entered = history[-1][0], target.value
    if entered not in _LEGAL[type(target)].get(source, ()):
        raise IllegalTransition(entity, source, entered, history)
    return (*history[1 - _KEPT :], (entered, at))


TERMINAL_JOB = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})
"""A job in one of these never changes again."""
HOLDING = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})
"""A task run in one of these takes room on an instance."""
TERMINAL_RUN = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})
"""A task run in one of these wants no place."""
LIVE = frozenset({InstanceState.LAUNCHING, InstanceState.UP, InstanceState.READY})
"""An instance in one of these may be given tasks."""
