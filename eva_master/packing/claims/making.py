"""Claims of a snapshot: for whom room is kept, and which.

Without them a large job would never start where what can be bought is limited: whatever becomes
free is soon enough for a small one, and never for it. So room is kept for task runs whose priority
is higher than another job's, and which can only run on offerings that are limited or not to be had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from eva_master.model.ids import JobId, Millis
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.snapshot import JobView, Snapshot
from eva_master.model.planning.suspension import Preemption
from eva_master.packing.claims.rooms import Unit, demands, endless, order
from eva_master.packing.claims.walk import Walk
from eva_master.packing.valuation.reservation_price import Demand

_MOST_DEMANDS = 32
"""For so many different demands room is kept in one round, the most urgent first; a demand that
waits at two priorities counts twice. So users who choose thousands of priorities or sizes delay
nobody: the others are planned for like everybody else."""


def with_claims(
    snapshot: Snapshot,
    ignored: Collection[JobId] = (),
    preemption: Preemption = Preemption.NEVER,
) -> Snapshot:
    """A snapshot that shows for whom room is kept.

    Task runs of equal priority share a claim. At most `_MOST_DEMANDS` demands are looked at.

    Args:
        snapshot: The cluster.
        ignored: Jobs for which nothing is kept, since they could not use it now.
        preemption: Whether running task runs may be suspended for those of higher priority.
    """
    priorities = {job.priority for job in snapshot.jobs}
    if len(priorities) <= 1 or all(endless(it, snapshot.now_ms) for it in snapshot.catalog):
        return snapshot
    lowest = min(priorities)
    by_priority: defaultdict[int, list[JobView]] = defaultdict(list)
    for job in snapshot.jobs:
        if job.priority > lowest and job.id not in ignored:
            by_priority[job.priority].append(job)
    walk, left = Walk(snapshot, plain=True), _MOST_DEMANDS
    for priority in sorted(by_priority, reverse=True):
        if left <= 0:
            break
        level = _first(_waiting(walk, by_priority[priority]), left)
        if level:
            left -= len(demands(level))
            walk.add(len(walk.steps), _claim(walk, level, preemption), level)
    claims = tuple(step.claim for step in walk.steps)
    return replace(snapshot, claims=claims) if claims else snapshot


def _waiting(walk: Walk, jobs: Sequence[JobView]) -> list[Unit]:
    """Task runs of jobs that wait for room, in order.

    Not among them is what would not fit into the empty cluster, for it waits for something else.
    """
    rooms = walk.rooms
    units = [unit for job in sorted(jobs, key=order) for unit in rooms.waiting(job)]
    limited = [unit for unit in walk.visible(units) if not rooms.buyable(unit)]
    return [unit for unit in limited if rooms.possible(unit)]


def _claim(walk: Walk, level: Sequence[Unit], preemption: Preemption) -> Claim:
    first, kept = level[0].job, walk.rooms.kept(level)
    since = (run.since_ms for unit in level for run in unit.runs if run.since_ms is not None)
    return Claim(
        first.id,
        tuple(run.id for unit in level for run in unit.runs),
        first.priority,
        tuple(sorted(kept.instances)),
        tuple(sorted(kept.slots.items())),
        min(since, default=Millis(walk.whole.now_ms)),
        preemption=preemption,
    )


def _first(units: Sequence[Unit], most: int) -> list[Unit]:
    """Those units that come first, of so many demands; the first unit in any case."""
    known: set[Demand] = set()
    first: list[Unit] = []
    for unit in units:
        new = {run.task.demand for run in unit.runs} - known
        if not first or len(known) + len(new) <= most:
            known |= new
            first.append(unit)
    return first
