"""How many members of a gang a cluster can hold, and what so many cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from eva_master.model.catalog import Offering
from eva_master.model.job import TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.room import by_offering, more_of, room_left
from eva_master.packing.valuation.job_valuation import Rates, pace_of
from eva_wire.values.ids import Family, InstanceId

_MANY = 10**6
"""Members that need nothing of an instance, or of an offering that is sold without limit."""


def member_of(snapshot: Snapshot, job: JobView) -> RunView:
    """A member of a gang; in an elastic gang all are alike."""
    return next(run for run in snapshot.runs if run.job == job.id)


def most_ever(snapshot: Snapshot, job: JobView) -> int:
    """How many members fit into the cluster if nobody else is there; at least the least number.

    Owned nodes and limits are bounds; what is out of stock for a while counts.
    """
    return _within(job, _held(snapshot.catalog, member_of(snapshot, job).task))


def most_useful(snapshot: Snapshot, job: JobView, rates: Rates) -> int:
    """Number of members with the most throughput together, in the cluster if it were empty.

    All members wait for the slowest of them unless they divide batches, so that more members on a
    slow type may reduce throughput. Of equally good numbers it is the least.

    Args:
        snapshot: The cluster.
        job: An elastic gang.
        rates: Iterations per second of a member by type; empty if types are alike.
    """
    assert job.sharing.elastic is not None
    task, rate_on = member_of(snapshot, job).task, dict(rates)
    held: Counter[Family] = Counter()
    for offering in snapshot.catalog:
        held[offering.type.family] += _of(offering, task, offering.limit)
    best, most = most_ever(snapshot, job), 0
    paces: list[int] = []
    for family in sorted(filter(held.get, held), key=lambda it: (-rate_on.get(it, 1), it)):
        more = min(held[family], job.sharing.elastic.most - len(paces))
        paces += [rate_on.get(family, 1)] * more
        if more and len(paces) >= job.sharing.elastic.least:
            pace = pace_of(paces, split=job.spec.training.split_batch)
            does = pace * job.sharing.elastic.speed_ppm(len(paces), apart=True)
            best, most = (len(paces), does) if does > most else (best, most)
    return best


def most_now(snapshot: Snapshot, job: JobView) -> int:
    """How many members would find room now, those that have places included, likewise.

    Of what is not used yet; others who wait may want it too.
    """
    task = member_of(snapshot, job).task
    used = by_offering(snapshot.instances)
    on_sale = [
        (offering, more_of(offering, used))
        for offering in snapshot.catalog
        if offering.available(snapshot.now_ms)
    ]
    total = sum(
        _of(offering, task, None if more is None else max(0, more)) for offering, more in on_sale
    )
    total += sum(fitting(task, offering, free) for _, offering, free in rooms(snapshot))
    placed = sum(run.job == job.id and run.instance is not None for run in snapshot.runs)
    return _within(job, total + placed)


def rooms(snapshot: Snapshot) -> Iterator[tuple[InstanceId, Offering, Resources]]:
    """Free room on each live instance."""
    offerings = {view.id: view.offering for view in snapshot.instances}
    free = room_left(offerings, snapshot.runs)
    for name, offering in offerings.items():
        yield name, offering, free[name]


def fitting(task: TaskSpec, offering: Offering, free: Resources) -> int:
    """Number of tasks of a kind that fit into free room of an instance."""
    need = task.demand_on(offering.type.family)
    if need is None:
        return 0
    parts = (
        (need.gpus, free.gpus),
        (need.milli_cpus, free.milli_cpus),
        (need.memory_mib, free.memory_mib),
        (need.disk_mib, free.disk_mib),
    )
    return max(
        0, min((room_part // amount for amount, room_part in parts if amount), default=_MANY)
    )


def _held(catalog: tuple[Offering, ...], task: TaskSpec) -> int:
    return sum(_of(offering, task, offering.limit) for offering in catalog)


def _of(offering: Offering, task: TaskSpec, number: int | None) -> int:
    each = fitting(task, offering, offering.type.capacity)
    return each * (_MANY if number is None else number)


def _within(job: JobView, members: int) -> int:
    assert job.sharing.elastic is not None
    return max(job.sharing.elastic.least, min(job.sharing.elastic.most, members))
