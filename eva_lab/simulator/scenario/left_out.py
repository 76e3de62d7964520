"""Past events of a cluster that a replay of its journal does not repeat, in words."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.control.state.store import State
from eva_master.model.records import Instance
from eva_wire.values.ids import MILLIS_PER_HOUR, Millis
from eva_wire.values.states import InstanceState


def left_out(state: State, start: Millis, until: Millis) -> tuple[str, ...]:
    """Say what of the records is not replayed; empty if all of it is.

    Args:
        state: The state restored from a journal.
        start: When the replay begins.
        until: The last time in the records.
    """
    return (*_suspensions(state, until), *_instances(state, start))


def _suspensions(state: State, until: Millis) -> Iterator[str]:
    rested = [
        job.rested_ms + (0 if job.resting_ms is None else until - job.resting_ms)
        for job in state.jobs.values()
        if job.rested_ms or job.resting_ms is not None or job.id in state.suspended
    ]
    if rested:
        hours = sum(rested) / MILLIS_PER_HOUR
        yield f"{_count(len(rested), 'job')} suspended, for {hours:,.2f} h in all: here none is"


def _instances(state: State, start: Millis) -> Iterator[str]:
    instances = state.instances.values()
    if late := sum(instance.owned and not _always_there(instance, start) for instance in instances):
        yield (
            f"{_count(late, 'owned node')} there for a part of the time: here it is the whole time"
        )
    if drained := sum(
        instance.drain is not None and instance.drain.ordered for instance in instances
    ):
        yield f"{_count(drained, 'instance')} drained by an operator: here they take tasks"
    if stood := sum(bool(instance.pool) for instance in instances):
        yield f"{_count(stood, 'instance')} in pools: here there are those that a policy states"


def _always_there(node: Instance, start: Millis) -> bool:
    gone = node.state is InstanceState.GONE
    return not gone and node.up_ms is not None and node.up_ms <= start


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{' was' if number == 1 else 's were'}"
