"""Which task waits that fits an empty instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eva_master.control.context import Context
from eva_master.control.features.emptied.memory import EmptiedMemory
from eva_master.control.features.shared_limits.memory import SharedLimitsMemory
from eva_master.control.planning import quota_use
from eva_master.control.state.derived.unplaced import PlacementNeed, needed
from eva_master.model.catalog import Offering, base_family
from eva_master.model.records import Instance
from eva_master.packing.shared_limits.queue import LAST, SharedQueue
from eva_wire.values.ids import Family, InstanceId, JobId, Millis
from eva_wire.values.states import InstanceState


def waiting_job(context: Context, instance: Instance, *, planned: bool) -> JobId | None:
    """The most urgent job of which a task waits that fits an empty instance, `None` if none does.

    A task waits that may start now: its job is not between two tries, its tenant's quota has room.

    Args:
        context: The present one.
        instance: Which.
        planned: Whether a plan left the instance empty. Then tasks that stand in lines wait for
            other room.
    """
    state, partitions = context.state, context.settings.partitions
    home = partitions.home(instance.partition)
    queued = state.membership.queued if planned else {}
    best: tuple[int, JobId] | None = None
    for need, jobs in state.unplaced.by_need():
        if best is not None and need.priority <= best[0]:
            continue
        if partitions.home(need.partition) is not home or not _fits(need, instance.offering):
            continue
        ready = (job for job in jobs if _is_ready(context, job) and job not in queued)
        if (job := next(ready, None)) is not None and _within_quota(context, need, instance):
            best = need.priority, job
    return None if best is None else best[1]


def next_elsewhere(context: Context, instance: Instance, job: JobId | None) -> bool:
    """Whether another partition takes precedence at a limit that the end of an instance relaxes.

    Args:
        context: Context of the control loop.
        instance: The instance.
        job: A job of its partition for which the instance would stay; `None` if unknown.
    """
    queue, state = context.memory(SharedLimitsMemory).queue, context.state
    if queue is None:
        return False
    home = context.settings.partitions.home(instance.partition).name
    owner = None if job is None else state.jobs[job].spec.owner
    units = queue.elsewhere(instance.offering, home, owner)
    first = next((unit for unit in units if unit.job.id in state.unplaced), None)
    if first is None:
        return False
    return job is None or queue.rank(first) < _rank_here(context, queue, instance, job)


def _rank_here(context: Context, queue: SharedQueue, instance: Instance, job: JobId) -> int:
    """Number of units that precede the first one of an instance's partition that fits it.

    Args:
        context: Context of the control loop.
        queue: The queue, which may be older than the wait of some units.
        instance: The instance.
        job: A job for which it would stay.
    """
    state = context.state
    home = context.settings.partitions.home(instance.partition).name
    ours = (unit for unit in queue.here(instance.offering, home) if unit.job.id in state.unplaced)
    first = next((unit for unit in ours if _is_ready(context, unit.job.id)), None)
    rank = queue.rank_of(job)
    if rank == LAST:
        rank = queue.rank_behind(state.dependencies.priority(state.jobs[job]))
    return rank if first is None else min(rank, queue.rank(first))


def headed(context: Context, instance: Instance) -> Iterator[InstanceId]:
    """Booting instances of the same offering that are ready later and have tasks on their way.

    An instance that is ready, or is ready sooner, can take the tasks of any of them. Termination of
    the younger instance costs no more.
    """
    state, partitions = context.state, context.settings.partitions
    home = partitions.home(instance.partition)
    for name in context.memory(EmptiedMemory).booting:
        other = state.instances[name]
        alike = other.offering.id == instance.offering.id and not other.pool and other.takes_tasks
        later = alike and _still_to_boot(instance) < _still_to_boot(other)
        if later and partitions.home(other.partition) is home:
            comers = state.places.coming(name)
            # Instances of one offering may have disks of different sizes.
            if comers and state.demand(comers, instance).fits(instance.offering.type.capacity):
                yield name


def _still_to_boot(instance: Instance) -> tuple[int, Millis]:
    """Order in which instances of one offering are ready: the smallest is ready first."""
    if instance.state is InstanceState.READY:
        return 0, Millis(0)
    return 1 + (instance.state is InstanceState.LAUNCHING), instance.requested_ms


def _fits(need: PlacementNeed, offering: Offering) -> bool:
    return any(needed(demand, offering.type) is not None for demand in need.demands)


def _is_ready(context: Context, job: JobId) -> bool:
    return context.state.jobs[job].not_before_ms <= context.now


def _within_quota(context: Context, need: PlacementNeed, instance: Instance) -> bool:
    tenancy = context.settings.tenancy
    home = context.settings.partitions.home(instance.partition)
    if need.tenant not in tenancy.enforced(home):
        return True
    shares = context.memory(EmptiedMemory).shares
    if (share := shares.get(need.tenant)) is None:
        share = shares[need.tenant] = quota_use.share(context.state, tenancy, need.tenant)
    return any(map(share.allows, _gpus(need, instance.offering)))


def _gpus(need: PlacementNeed, offering: Offering) -> Iterable[dict[Family, int]]:
    family = base_family(offering.type.family)
    for demand in need.demands:
        if (need_there := needed(demand, offering.type)) is not None:
            yield {family: need_there.gpus} if need_there.gpus else {}
