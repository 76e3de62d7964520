"""The queue at limits that partitions share, as the records have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eva_master.control.context import Context
from eva_master.control.features.deadlines.ordering import with_due
from eva_master.control.features.shared_limits.memory import (
    CloudRefusal,
    QueueMemory,
    SharedLimitsMemory,
)
from eva_master.control.planning import quota_use
from eva_master.control.planning.allowance import Allowance, allowance
from eva_master.control.planning.parts import Sums
from eva_master.control.planning.snapshot_builder import revision, snapshot
from eva_master.control.settings import NO_LIMIT, Settings
from eva_master.control.state.records import PlanningRecords
from eva_master.control.supply import availability
from eva_master.model.catalog import Offering
from eva_master.model.fleet.partitions import Budget, Partition
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.shared_limits.limit import LimitUnit, Parts, Refusal, SharedLimits
from eva_master.packing.shared_limits.queue import SharedQueue, waiting_in_order
from eva_wire.values.ids import Millis
from eva_wire.values.states import TERMINAL_RUN, InstanceState

_UNDIVIDED = Parts(home=lambda _: "", sells=lambda *_: True, allows=lambda *_: True)


def shared_queue(
    state: PlanningRecords,
    settings: Settings,
    whole: Snapshot,
    *,
    sums: Sums,
    now: Millis,
    memory: QueueMemory,
) -> SharedQueue | None:
    """The queue of units that wait for limits which partitions share, in order.

    Args:
        state: The records.
        settings: Partitions and limits of the cluster.
        whole: The cluster.
        sums: Sums over each partition, by the name on record.
        now: The time.
        memory: Data that earlier rounds left.

    Returns:
        `None` without two partitions.
    """
    partitions = settings.partitions
    if len(partitions.parts) < 2:
        return None
    named = {partition.name: partition for partition in partitions.parts}
    allowances = {
        partition.name: allowance(state, sums, partition, now)
        for partition in partitions.parts
        if _is_limited(partition)
    }

    def home(name: str) -> str:
        return partitions.home(name).name

    def sells(partition: str, offering: Offering) -> bool:
        return named[partition].sells(offering)

    parts = Parts(
        home,
        sells,
        _allows(allowances),
        limits_tenants=lambda name: bool(settings.tenancy.enforced(named[name])),
        out=memory.out,
        passed=memory.passed,
        since=memory.since,
    )
    seen = with_due(state, whole, now, settings, own_order=False)
    refusals = tuple(_refusal(state, refusal, now) for refusal in memory.refusals)
    return SharedQueue(seen, parts, _shared(state, settings, whole, refusals))


def current(context: Context) -> SharedQueue | None:
    """The present queue; made once while nothing changes.

    Args:
        context: Of this turn.
    """
    state, settings, memory = context.state, context.settings, context.memory(SharedLimitsMemory)
    if len(settings.partitions.parts) < 2:
        return None
    _follow_arrays(context)
    paused = availability.paused_jobs(context)
    remembered = memory.value(paused, context.now, settings.round_period_ms)
    changes = revision(state, context.now, settings)
    refusals = tuple(_refusal(state, refusal, context.now) for refusal in remembered.refusals)
    key = changes, context.now, remembered, len(state.live), refusals
    if memory.made != key:
        memory.queue = shared_queue(
            state,
            settings,
            snapshot(state, context.now, settings),
            sums=state.tally.partitions.totals(),
            now=context.now,
            memory=remembered,
        )
        memory.made = key
    return memory.queue


def waiting_units(context: Context) -> tuple[Parts, Sequence[LimitUnit]]:
    """The division of the cluster, undivided ones included, and its waiting units in order."""
    queue = current(context)
    if queue is not None:
        return queue.room.parts, queue.waiting
    state, settings, now = context.state, context.settings, context.now
    seen = with_due(state, snapshot(state, now, settings), now, settings, own_order=False)
    return _UNDIVIDED, waiting_in_order(seen, _UNDIVIDED)


def _follow_arrays(context: Context) -> None:
    """Note the times since which arrays with limited concurrency may start their next tasks.

    Before that time their tasks wait for no limit of the cluster.
    """
    state, memory = context.state, context.memory(SharedLimitsMemory)
    for name in state.unplaced:
        job = state.jobs[name]
        if job.is_gang or job.spec.array.concurrency is None:
            continue
        over = state.tasks.succeeded(name) + state.tasks.failed(name)
        if name not in memory.over:
            runs = (state.runs[run] for run in state.tasks[name].touched)
            ended = (run for run in runs if run.state in TERMINAL_RUN)
            memory.since[name] = max((run.since_ms for run in ended), default=Millis(0))
        elif memory.over[name] != over:
            memory.since[name] = context.now
        memory.over[name] = over


def _is_limited(partition: Partition) -> bool:
    return partition.limits.instances is not None or partition.budget != Budget()


def _allows(allowances: Mapping[str, Allowance]) -> Callable[[str, int, int], bool]:
    """Whether a partition's own limits allow some more launches."""

    def allows(partition: str, launched: int, price: int) -> bool:
        allowed = allowances.get(partition)
        return allowed is None or not allowed.refusal(launched, price)

    return allows


def _shared(
    state: PlanningRecords, settings: Settings, whole: Snapshot, refusals: tuple[Refusal, ...]
) -> SharedLimits:
    """Limits that partitions share, and what is left of them."""
    limits, live = settings.limits, len(state.live)
    quotas = {view.name: view.quota for view in whole.tenants}
    return SharedLimits(
        instances=None if limits.instances >= NO_LIMIT else limits.instances - live,
        all_instances=limits.instances,
        per_user=None if limits.instances_per_user >= NO_LIMIT else limits.instances_per_user,
        refusals=refusals,
        quotas=quotas,
        use=quota_use.use(state, quotas) if quotas else {},
    )


def _refusal(state: PlanningRecords, refusal: CloudRefusal, now: Millis) -> Refusal:
    """How many launches may be tried where the cloud refused one.

    None before the next try is due; then one, and one more for each that has succeeded since.
    """
    if now < refusal.until_ms:
        return Refusal(refusal.offerings, 0)
    tries = successes = 0
    for instance in map(state.instances.__getitem__, state.live):
        if instance.offering.id not in refusal.offerings:
            continue
        if instance.up_ms is None:
            tries += instance.state is InstanceState.LAUNCHING
        else:
            successes += instance.requested_ms >= refusal.at_ms
    return Refusal(refusal.offerings, max(0, 1 + successes - tries))
