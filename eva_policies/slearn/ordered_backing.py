"""Rooms that another policy buys and packs, given away in the order of the queues.

A task with a place keeps it, or is moved by that policy as usual: the order concerns waiting tasks.
While room is short, the policy sees only the first tasks in order that fit into the room where it
would have placed any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Hold, Plan, PlanEntry, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.room import more_of
from eva_master.packing.toolkit import PlacementGroup, waiting
from eva_master.ports import Planned, Policy
from eva_policies.slearn.allocation_order import PlannedRoom, affordable, dealt, fitting, given
from eva_policies.slearn.config import Config
from eva_policies.slearn.memory import RequestOutcome
from eva_policies.slearn.queues import Queued
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId

_Decided = Planned


class Backed:
    """A policy that buys and packs, behind the queues.

    Args:
        config: Of the queues.
        back: The policy.
    """

    def __init__(self, config: Config, back: Policy) -> None:
        self._config = config
        self._back = back

    def plan(
        self,
        snapshot: Snapshot,
        queued: Sequence[Queued],
        asked: RequestOutcome,
        memory: PolicyMemory | None,
        why: Callable[[Queued], str],
    ) -> tuple[Plan, PolicyMemory | None, RequestOutcome]:
        """Have the other policy place the tasks that come first.

        Args:
            snapshot: The cluster.
            queued: All jobs, in the order of the queues.
            asked: Outcome of the last plan's requests for room.
            memory: Memory of the policy behind.
            why: Function that explains to users why a job waits behind others.

        Returns:
            The plan, the policy's memory, and the requests to remember.
        """
        placed = _placed(snapshot)
        refused = asked.after(snapshot, placed)
        groups: dict[JobId, list[PlacementGroup]] = {}
        for group in waiting(snapshot):
            groups.setdefault(group.job.id, []).append(group)
        on_rooms = {job.id: placed[job.id] - job.progress.over for job in snapshot.jobs}
        order = dealt(self._config, queued, groups, on_rooms, frozenset(refused))
        seen = _ranked(snapshot, order)
        late = {
            entry.job.id for entry in queued if entry.passed_over_ms(self._config, snapshot.now_ms)
        }
        (plan, after), hidden = self._decided(seen, order, memory, late)
        goes = affordable(plan, order, snapshot.leeway)
        had = {group.job.id: placed[group.job.id] for group in order if group.runs[0].id in goes}
        by_job = {entry.job.id: entry for entry in queued}
        holds = (Hold(run.id, why(by_job[group.job.id])) for group in hidden for run in group.runs)
        pilots = tuple((entry.job.id, entry.pilots) for entry in queued if entry.pilots)
        plan = replace(plan, entries=(*_sorted(plan, order), *holds), pilots=pilots)
        return plan, after, RequestOutcome(had, refused)

    def _decided(
        self,
        seen: Snapshot,
        order: Sequence[PlacementGroup],
        memory: PolicyMemory | None,
        late: Collection[JobId],
    ) -> tuple[_Decided, list[PlacementGroup]]:
        """The policy's decision, and the groups that it was not shown."""
        every = self._back.plan(seen, memory)
        goes = affordable(every[0], order, seen.leeway)
        if all(run.id in goes for group in order for run in group.runs):
            return every, []

        def holds_up(group: PlacementGroup) -> bool:
            gang = group.job.spec.kind is JobKind.GANG and len(group.runs) > 1
            return gang and group.job.id in late and _possible(seen, group)

        first, kept = fitting(order, PlannedRoom(seen, every[0], goes), holds_up)
        shown = _names(first)
        # A group with a placed member of its gang is always shown.
        hidden = [group for group in order if group.runs[0].id not in shown and not _in_part(group)]
        if not hidden:
            return every, []
        some = self._back.plan(_without(seen, _names(hidden)), memory)
        had = affordable(some[0], order, seen.leeway)
        if kept or len(had) >= len(goes):
            return some, hidden
        # If the policy left part of the room unused, others get it, unless a group loses by that.
        idle = [group for group in first if group.runs[0].id not in had and not _in_part(group)]
        more = self._back.plan(_without(seen, _names(idle)), memory)
        have = affordable(more[0], order, seen.leeway)
        return (more, idle) if have.keys() > had.keys() else (some, hidden)


def _placed(snapshot: Snapshot) -> Counter[JobId]:
    """Number of tasks of each job that have, or have had, a place."""
    tally = Counter({job.id: job.progress.over for job in snapshot.jobs})
    tally.update(run.job for run in snapshot.runs if run.instance is not None)
    return tally


def _ranked(snapshot: Snapshot, order: Iterable[PlacementGroup]) -> Snapshot:
    """A snapshot in which those who wait have come in this order: policies go by arrival.

    They exchange the times at which they did come; the more urgent still are. Sizes of gangs are
    not the policy's to choose.
    """
    names = dict.fromkeys(group.job.id for group in order)
    jobs = {job.id: job for job in snapshot.jobs}
    times: dict[int, list[Millis]] = {}
    for name in names:
        times.setdefault(jobs[name].priority, []).append(jobs[name].submitted_ms)
    for those in times.values():
        those.sort(reverse=True)
    came = {name: times[jobs[name].priority].pop() for name in names}

    def ranked(job: JobView) -> JobView:
        at = came.get(job.id, job.submitted_ms)
        if at == job.submitted_ms and job.sharing.elastic is None:
            return job
        return replace(job, submitted_ms=at, sharing=replace(job.sharing, elastic=None))

    return replace(snapshot, jobs=tuple(map(ranked, snapshot.jobs)))


def _in_part(group: PlacementGroup) -> bool:
    """Whether some members of a gang wait, and others have a place."""
    return group.job.spec.kind is JobKind.GANG and len(group.runs) < len(group.job.runs)


def _names(groups: Iterable[PlacementGroup]) -> set[RunId]:
    return {run.id for group in groups for run in group.runs}


def _without(seen: Snapshot, hidden: Collection[RunId]) -> Snapshot:
    """A snapshot without some waiting task runs."""
    jobs = []
    for job in seen.jobs:
        names = tuple(run for run in job.runs if run not in hidden)
        if len(names) == len(job.runs):
            jobs.append(job)
        elif names:
            jobs.append(replace(job, runs=names))
    runs = tuple(run for run in seen.runs if run.id not in hidden)
    return replace(seen, jobs=tuple(jobs), runs=runs)


def _possible(seen: Snapshot, group: PlacementGroup) -> bool:
    """Whether an empty cluster would have room and money for a group."""
    rooms = [(view.offering, view.offering.type.capacity) for view in seen.instances]
    used = Counter(view.offering.id for view in seen.instances)
    most = len(group.runs) if seen.leeway.instances is None else seen.leeway.instances
    for sold in sorted(seen.catalog, key=lambda it: (it.price, it.id)):
        more = more_of(sold, used)
        count = most if more is None else min(most, more)
        if sold.available(seen.now_ms):
            rooms += [(sold, sold.type.capacity)] * max(0, min(count, len(group.runs)))
    launched, cost, live = 0, 0, len(seen.instances)
    for run in group.runs:
        for number, (offering, free) in enumerate(rooms):
            need = run.task.demand_on(offering.type.family)
            if need is not None and need.fits(free):
                fresh = number >= live and free == offering.type.capacity
                launched, cost = launched + fresh, cost + fresh * offering.price
                rooms[number] = offering, free - need
                break
        else:
            return False
    return launched <= most and (seen.leeway.per_hour is None or cost <= seen.leeway.per_hour)


def _sorted(plan: Plan, order: Sequence[PlacementGroup]) -> list[PlanEntry]:
    """A plan's entries in the order of the queues, since limits cut the last ones."""
    rank = {run.id: number for number, group in enumerate(order) for run in group.runs}
    goes = given(plan)
    return sorted(
        plan.entries,
        key=lambda it: (it.run not in goes, rank.get(it.run, len(rank))),
    )
