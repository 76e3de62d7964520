"""Suspension of less urgent tasks of other partitions, where the operator allows it."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.control import suspending
from eva_master.control.context import Context
from eva_master.control.features.deadlines.ordering import with_due
from eva_master.control.features.shared_limits.memory import SharedLimitsMemory
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.plan import Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.suspension import Preemption
from eva_master.packing.shared_limits.preempting import LimitVictimSearch
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_wire.values.ids import InstanceId


def make_room(
    context: Context, partition: Partition, whole: Snapshot, queue: SharedQueue | None
) -> None:
    """Suspend tasks of other partitions for more urgent units that are next at a limit.

    Args:
        context: Of this turn.
        partition: The partition of those units, whose plan has just been adopted.
        whole: The cluster after that plan.
        queue: The queue after that plan.
    """
    settings, memory = context.settings, context.memory(SharedLimitsMemory)
    if queue is None or not settings.preemption_across:
        return
    if settings.preemption is not Preemption.SUSPEND:
        return
    seen = with_due(context.state, whole, context.now, settings, own_order=False)
    search = LimitVictimSearch(seen, queue, partition.name, set(_vacating(context)))
    for entry in tuple(search.found(memory.left_unused)):
        job = entry.unit.job.id
        reason = f"makes room for {job} of partition {partition.name}, which has a higher priority"
        for run in entry.runs:
            if context.state.runs[run].target is not None:
                suspending.by_plan(context, Suspend(run, reason, job))


def _vacating(context: Context) -> Iterator[InstanceId]:
    """Instances on which nothing is to stay."""
    state = context.state
    for name in state.live:
        instance = state.instances[name]
        if not (instance.owned or instance.stands or state.places.targeting(name)):
            yield name
