"""Rooms that another policy buys and packs, given away in the order of the queues.

Whoever has a place keeps it, or is moved by that policy as ever: the order is about who waits. It
matters where there is not room for all. Then the policy is shown those only who come first, and who
fit where it would have put somebody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from eva_master.model.ids import JobId, Millis, RunId
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Hold, Plan, PlanEntry, PolicyMemory
from eva_master.model.planning.snapshot import JobView, Snapshot
from eva_master.model.values import replace
from eva_master.packing.toolkit import PlacementGroup, waiting
from eva_master.policies.slearn.config import Config
from eva_master.policies.slearn.dealing import Rooms, affordable, dealt, fitting, given
from eva_master.policies.slearn.memory import Asked
from eva_master.policies.slearn.queues import Queued
from eva_master.ports import Policy

_Decided = tuple[Plan, PolicyMemory | None]


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
        asked: Asked,
        memory: PolicyMemory | None,
        why: Callable[[Queued], str],
    ) -> tuple[Plan, PolicyMemory | None, Asked]:
        """Have places found for those who come first.

        Args:
            snapshot: The cluster.
            queued: Every job, in the order of the queues.
            asked: What became of the last plan.
            memory: Of the policy behind.
            why: What users are told of a job that waits since others come first.

        Returns:
            The plan, with what is to be remembered.
        """
        placed = _placed(snapshot)
        refused = asked.after(snapshot, placed)
        groups: dict[JobId, list[PlacementGroup]] = {}
        for group in waiting(snapshot):
            groups.setdefault(group.job.id, []).append(group)
        on_rooms = {it.id: placed[it.id] - it.over for it in snapshot.jobs}
        order = dealt(self._config, queued, groups, on_rooms, frozenset(refused))
        seen = _ranked(snapshot, order)
        late = {it.job.id for it in queued if it.passed_over_ms(self._config, snapshot.now_ms)}
        (plan, after), hidden = self._decided(seen, order, memory, late)
        goes = affordable(plan, order, snapshot.leeway)
        had = {it.job.id: placed[it.job.id] for it in order if it.runs[0].id in goes}
        by_job = {it.job.id: it for it in queued}
        holds = (Hold(run.id, why(by_job[it.job.id])) for it in hidden for run in it.runs)
        pilots = tuple((it.job.id, it.pilots) for it in queued if it.pilots)
        plan = replace(plan, entries=(*_sorted(plan, order), *holds), pilots=pilots)
        return plan, after, Asked(had, refused)

    def _decided(
        self,
        seen: Snapshot,
        order: Sequence[PlacementGroup],
        memory: PolicyMemory | None,
        late: Collection[JobId],
    ) -> tuple[_Decided, list[PlacementGroup]]:
        """What the policy decides, and whom it was not shown."""
        every = self._back.plan(seen, memory)
        goes = affordable(every[0], order, seen.leeway)
        if all(run.id in goes for group in order for run in group.runs):
            return every, []

        def holds_up(group: PlacementGroup) -> bool:
            gang = group.job.kind is JobKind.GANG and len(group.runs) > 1
            return gang and group.job.id in late and _possible(seen, group)

        first, kept = fitting(order, Rooms(seen, every[0], goes), holds_up)
        shown = _names(first)
        # Who shares a gang with somebody who has a place is the policy's to complete, or to leave.
        hidden = [it for it in order if it.runs[0].id not in shown and not _in_part(it)]
        if not hidden:
            return every, []
        some = self._back.plan(_without(seen, _names(hidden)), memory)
        had = affordable(some[0], order, seen.leeway)
        if kept or len(had) >= len(goes):
            return some, hidden
        # It had no use for all of the room: others get what is left, if nobody loses by that.
        idle = [it for it in first if it.runs[0].id not in had and not _in_part(it)]
        more = self._back.plan(_without(seen, _names(idle)), memory)
        have = affordable(more[0], order, seen.leeway)
        return (more, idle) if have.keys() > had.keys() else (some, hidden)


def _placed(snapshot: Snapshot) -> Counter[JobId]:
    """How many tasks of each job have, or have had, a place."""
    found = Counter({job.id: job.over for job in snapshot.jobs})
    found.update(run.job for run in snapshot.runs if run.instance is not None)
    return found


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
        if at == job.submitted_ms and job.elastic is None:
            return job
        return replace(job, submitted_ms=at, elastic=None)

    return replace(snapshot, jobs=tuple(map(ranked, snapshot.jobs)))


def _in_part(group: PlacementGroup) -> bool:
    """Whether some members of a gang wait, and others have a place."""
    return group.job.kind is JobKind.GANG and len(group.runs) < len(group.job.runs)


def _names(groups: Iterable[PlacementGroup]) -> set[RunId]:
    return {run.id for group in groups for run in group.runs}


def _without(seen: Snapshot, hidden: Collection[RunId]) -> Snapshot:
    """A snapshot without some task runs that wait."""
    jobs = []
    for job in seen.jobs:
        left = tuple(run for run in job.runs if run not in hidden)
        if len(left) == len(job.runs):
            jobs.append(job)
        elif left:
            jobs.append(replace(job, runs=left))
    runs = tuple(run for run in seen.runs if run.id not in hidden)
    return replace(seen, jobs=tuple(jobs), runs=runs)


def _possible(seen: Snapshot, group: PlacementGroup) -> bool:
    """Whether there would be room, and money, for a group if nobody else were there."""
    rooms = [(view.offering, view.offering.type.capacity) for view in seen.instances]
    used = Counter(view.offering.id for view in seen.instances)
    most = len(group.runs) if seen.leeway.instances is None else seen.leeway.instances
    for one in sorted(seen.catalog, key=lambda it: (it.price, it.id)):
        count = most if one.limit is None else min(most, one.limit - used[one.id])
        if one.available(seen.now_ms):
            rooms += [(one, one.type.capacity)] * max(0, min(count, len(group.runs)))
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
    """A plan's entries with those first who come first: limits let these have their places."""
    rank = {run.id: number for number, it in enumerate(order) for run in it.runs}
    goes = given(plan)
    return sorted(
        plan.entries,
        key=lambda it: (it.run not in goes, rank.get(it.run, len(rank))),
    )
