"""How many members of a gang a cluster can hold, and what so many cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from eva_master.model.catalog import Offering
from eva_master.model.ids import Family, InstanceId
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import JobView, RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.valuation.job_valuation import Rates, pace_of

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
    """How many members do most together, on the types that are there if nobody else is.

    All wait for the slowest of them unless they divide batches, so that more members on a slow type
    as well may do less. Of numbers that do equally much it is the least.

    Args:
        snapshot: The cluster.
        job: An elastic gang.
        rates: Iterations per second of a member by type; types are alike if there are none.
    """
    assert job.elastic is not None
    task, known = member_of(snapshot, job).task, dict(rates)
    held: Counter[Family] = Counter()
    for offering in snapshot.catalog:
        held[offering.type.family] += _of(offering, task, offering.limit)
    best, most = most_ever(snapshot, job), 0
    there: list[int] = []
    for family in sorted(filter(held.get, held), key=lambda it: (-known.get(it, 1), it)):
        more = min(held[family], job.elastic.most - len(there))
        there += [known.get(family, 1)] * more
        if more and len(there) >= job.elastic.least:
            pace = pace_of(there, split=job.split_batch)
            does = pace * job.elastic.speed_ppm(len(there), apart=True)
            best, most = (len(there), does) if does > most else (best, most)
    return best


def most_now(snapshot: Snapshot, job: JobView) -> int:
    """How many members would find room now, those that have places included, likewise.

    Of what is not used yet; others who wait may want it too.
    """
    task = member_of(snapshot, job).task
    used = Counter(view.offering.id for view in snapshot.instances)
    on_sale = [
        (offering, None if offering.limit is None else max(0, offering.limit - used[offering.id]))
        for offering in snapshot.catalog
        if offering.available(snapshot.now_ms)
    ]
    total = sum(_of(offering, task, number) for offering, number in on_sale)
    total += sum(fitting(task, offering, free) for _, offering, free in rooms(snapshot))
    placed = sum(run.job == job.id and run.instance is not None for run in snapshot.runs)
    return _within(job, total + placed)


def rooms(snapshot: Snapshot) -> Iterator[tuple[InstanceId, Offering, Resources]]:
    """What is free on each live instance."""
    used: dict[InstanceId, Resources] = {view.id: NOTHING for view in snapshot.instances}
    families = {view.id: view.offering.type.family for view in snapshot.instances}
    for run in snapshot.runs:
        if run.instance is not None and run.instance in used:
            took = run.task.demand_on(families[run.instance]) or NOTHING
            used[run.instance] = used[run.instance] + took
    for view in snapshot.instances:
        yield view.id, view.offering, view.offering.type.capacity - used[view.id]


def fitting(task: TaskSpec, offering: Offering, free: Resources) -> int:
    """How many tasks of a kind fit into what is free on an instance."""
    need = task.demand_on(offering.type.family)
    if need is None:
        return 0
    parts = (
        (need.gpus, free.gpus),
        (need.milli_cpus, free.milli_cpus),
        (need.memory_mib, free.memory_mib),
    )
    return max(0, min((there // one for one, there in parts if one), default=_MANY))


def _held(catalog: tuple[Offering, ...], task: TaskSpec) -> int:
    return sum(_of(offering, task, offering.limit) for offering in catalog)


def _of(offering: Offering, task: TaskSpec, number: int | None) -> int:
    each = fitting(task, offering, offering.type.capacity)
    return each * (_MANY if number is None else number)


def _within(job: JobView, members: int) -> int:
    assert job.elastic is not None
    return max(job.elastic.least, min(job.elastic.most, members))
