"""Limits that partitions share, for whoever looks: who uses them, and who is next."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import islice

from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.control.state.records import Records
from eva_master.model.fleet.partitions import Partitions
from eva_master.model.records import Instance
from eva_master.packing.shared_limits.limit import ALL_INSTANCES, Limit, LimitKind, LimitUnit
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_master.ports.shared_limits import QueuedJob, SharedLimit
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId, job_of
from eva_wire.values.states import RunState

_LIMITS_SHOWN = 50
"""So many limits are shown, those first that jobs wait for."""
_JOBS_SHOWN = 20
"""Of so many jobs that wait for a limit each is shown."""


def shared_limits(
    records: Records,
    partitions: Partitions,
    limits: Limits,
    queue: SharedQueue | None,
    gpus: Callable[[str], tuple[int, int]],
) -> tuple[SharedLimit, ...]:
    """The limits shared by partitions that are in use, or for which jobs wait.

    Args:
        records: Records of the cluster.
        partitions: Partitions of the cluster.
        limits: Limits of the cluster.
        queue: The queue at the last look; `None` if no two partitions share anything.
        gpus: Returns the GPUs that a tenant uses, and the number in its quota.
    """
    if queue is None:
        return ()
    lines = _lines(records, queue)
    limited = {
        offering.id: offering.limit for offering in records.catalog if offering.limit is not None
    }
    live = [records.instances[name] for name in records.live if not records.instances[name].owned]
    shared = {
        offering.id
        for offering in records.catalog
        if offering.id in limited and sum(part.sells(offering) for part in partitions.parts) > 1
    }
    shown = [*lines]
    if limits.instances < NO_LIMIT:
        shown.append(ALL_INSTANCES)
    used = Counter(instance.offering.id for instance in live)
    shown += [Limit(LimitKind.OFFERING, name) for name in sorted(shared & used.keys())]
    limits_shown = []
    for limit in islice(dict.fromkeys(shown), _LIMITS_SHOWN):
        counts = _counting(records, queue, limit)
        ours = [instance for instance in live if counts(instance)]
        by_partition = Counter(partitions.home(instance.partition).name for instance in ours)
        count, most = len(ours), _most(limit, limited, limits)
        if limit.kind is LimitKind.INSTANCES:
            count = len(records.live)
        if limit.kind is LimitKind.TENANT:
            by_partition, (count, most) = Counter(), gpus(limit.about)
        waiting = list(lines.get(limit, ()))
        limits_shown.append(
            SharedLimit(
                name=str(limit),
                kind=limit.kind.value,
                about=limit.about,
                used=count,
                most=most,
                used_by=dict(sorted(by_partition.items())),
                waiting=tuple(waiting[:_JOBS_SHOWN]),
                more=max(0, len(waiting) - _JOBS_SHOWN),
            )
        )
    return tuple(limits_shown)


def _lines(records: Records, queue: SharedQueue) -> dict[Limit, list[QueuedJob]]:
    """Jobs that still wait for each limit, in order."""
    lines: defaultdict[Limit, dict[JobId, tuple[LimitUnit, int]]] = defaultdict(dict)
    for unit, seat in zip(queue.waiting, queue.seats, strict=True):
        if not seat.lacking or not any(_waits(records, run.id) for run in unit.runs):
            continue
        for limit in seat.lacking:
            first, tasks = lines[limit].get(unit.job.id, (unit, 0))
            lines[limit][unit.job.id] = first, tasks + len(unit.runs)
    return {
        limit: [
            QueuedJob(job, unit.partition, unit.job.priority, tasks, unit.since_ms)
            for job, (unit, tasks) in lines[limit].items()
        ]
        for limit in sorted(lines)
    }


def _waits(records: Records, name: RunId) -> bool:
    """Whether a task run still waits for a place."""
    if job_of(name) not in records.active:
        return False
    run = records.runs.get(name)
    return run is not None and run.state is RunState.WAITING and run.target is None


def _counting(records: Records, queue: SharedQueue, limit: Limit) -> Callable[[Instance], bool]:
    """Whether an instance counts against a limit."""
    match limit.kind:
        case LimitKind.OFFERING:
            return lambda it: it.offering.id == limit.about
        case LimitKind.CLOUD:
            return lambda it: limit in queue.room.limits_of(it.offering.id, None)
        case LimitKind.INSTANCES:
            return lambda _: True
        case LimitKind.USER:
            places = _places(records, limit.about)
            return lambda it: it.id in places
        case LimitKind.TENANT:
            return lambda _: False


def _places(records: Records, owner: str) -> set[InstanceId | None]:
    """Instances on which tasks of a user are, or are about to be."""
    jobs = (name for name in records.active if records.jobs[name].spec.owner == owner)
    runs = (run for name in jobs for run in records.in_hand(name))
    return {place for run in runs for place in (run.instance, run.target)}


def _most(limit: Limit, limited: Mapping[OfferingId, int], limits: Limits) -> int | None:
    match limit.kind:
        case LimitKind.OFFERING:
            return limited.get(OfferingId(limit.about))
        case LimitKind.INSTANCES:
            return limits.instances
        case LimitKind.USER:
            return limits.instances_per_user
        case LimitKind.CLOUD | LimitKind.TENANT:
            return None
