"""In which order waiting tasks get room on instances that another policy buys, and who fits."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.snapshot import Leeway, RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import sameness
from eva_master.packing.toolkit import PlacementGroup
from eva_policies.slearn.config import Config
from eva_policies.slearn.queues import Queued
from eva_wire.values.ids import InstanceId, JobId, RunId

Where = InstanceId | int
"""A live instance, or a new one by its key in a plan."""


def dealt(
    config: Config,
    queued: Sequence[Queued],
    waiting: Mapping[JobId, Sequence[PlacementGroup]],
    held: Mapping[JobId, int],
    last: frozenset[JobId] = frozenset(),
) -> list[PlacementGroup]:
    """Waiting groups, in the order in which they would get room that becomes free.

    The next group is the first of the queue that holds least for its weight, as in lines. Other
    tasks of jobs whose pilots are not done come after all queues, by arrival. More urgent jobs come
    before all others.

    Args:
        config: Settings, with the weights.
        queued: The jobs, in their order.
        waiting: Waiting groups of each job.
        held: Number of tasks of each job that have a place.
        last: Jobs that come after all others that are as urgent.
    """
    ordered: list[PlacementGroup] = []
    for priority in sorted({entry.job.priority for entry in queued}, reverse=True):
        of_priority = [entry for entry in queued if entry.job.priority == priority]
        queues: dict[int, deque[PlacementGroup]] = {}
        spare: list[PlacementGroup] = []
        behind: list[PlacementGroup] = []
        has = Counter[int]()
        for entry in of_priority:
            has[entry.queue] += held.get(entry.job.id, 0) * entry.each
            own = queues.setdefault(entry.queue, deque())
            for group in waiting.get(entry.job.id, ()):
                chosen = not entry.pilots or index_of(group.runs[0].id) in entry.pilots
                into = behind if entry.job.id in last else own if chosen else spare
                into.append(group)
        spare.sort(key=lambda it: (it.job.submitted_ms, it.job.id))
        each = {entry.job.id: entry.each for entry in of_priority}
        ordered += [*_shared(config, queues, has, each), *spare, *behind]
    return ordered


def _shared(
    config: Config,
    queues: Mapping[int, deque[PlacementGroup]],
    has: Mapping[int, int],
    each: Mapping[JobId, int],
) -> Iterator[PlacementGroup]:
    """Groups in queues, next always from the queue that holds least for its weight."""
    step = config.weight_step
    line = [(has[queue] * step**queue, queue) for queue, groups in queues.items() if groups]
    heapq.heapify(line)
    while line:
        holds, queue = heapq.heappop(line)
        group = queues[queue].popleft()
        yield group
        if queues[queue]:
            more = len(group.runs) * each[group.job.id]
            heapq.heappush(line, (holds + more * step**queue, queue))


def index_of(run: RunId) -> int:
    """The index of a task in its job."""
    return int(run.rpartition("/")[2].partition("+")[0])


def given(plan: Plan) -> dict[RunId, Where]:
    """Where a plan has task runs go."""
    return {entry.run: entry.on for entry in plan.entries if isinstance(entry, Assign)}


def affordable(plan: Plan, order: Sequence[PlacementGroup], leeway: Leeway) -> dict[RunId, Where]:
    """Places that a plan gives to waiting groups, in order, as far as limits and budgets allow."""
    goes = given(plan)
    prices = {launch.key: launch.offering.price for launch in plan.launches}
    bought: set[int] = set()
    cost = 0
    placed: dict[RunId, Where] = {}
    for group in order:
        places = {run.id: goes[run.id] for run in group.runs if run.id in goes}
        if len(places) < len(group.runs):
            continue
        more = {place for place in places.values() if isinstance(place, int)} - bought
        if more:
            costs = cost + sum(prices[key] for key in more)
            few = leeway.instances is None or len(bought) + len(more) <= leeway.instances
            if not few or (leeway.per_hour is not None and costs > leeway.per_hour):
                continue
            bought, cost = bought | more, costs
        placed.update(places)
    return placed


@dataclass(slots=True)
class _FreePlace:
    """A place, with what is free there."""

    offering: Offering
    free: Resources


class PlannedRoom:
    """Free room where a plan places waiting tasks, before it does.

    Other room does not count, since the policy has seen all of these tasks.

    Args:
        seen: The snapshot of the plan.
        plan: The plan.
        goes: Places of waiting tasks in the plan.
    """

    def __init__(self, seen: Snapshot, plan: Plan, goes: Mapping[RunId, Where]) -> None:
        self._goes = goes
        used = set(goes.values())
        offerings: dict[Where, Offering] = {view.id: view.offering for view in seen.instances}
        offerings.update((launch.key, launch.offering) for launch in plan.launches)
        self._rows: dict[Where | None, _FreePlace] = {
            name: _FreePlace(offering, offering.type.capacity)
            for name, offering in offerings.items()
            if name in used
        }
        moved = {run: on for run, on in given(plan).items() if run not in goes}
        for run in seen.runs:
            for place in {run.instance, moved.get(run.id)}:
                if (row := self._rows.get(place)) is not None:
                    row.free = row.free - _need(run, row)
        self._full: set[object] = set()
        """Kinds of tasks that no longer fit."""

    def put(self, group: PlacementGroup) -> bool:
        """Give all of a group room; return whether there was enough."""
        taken: list[tuple[_FreePlace, Resources]] = []
        for run in group.runs:
            row = self._row_for(run)
            if row is None:
                for taken_row, need in taken:
                    taken_row.free = taken_row.free + need
                if not taken:  # no room was given back
                    self._full.add(sameness(run.task))
                return False
            need = _need(run, row)
            row.free = row.free - need
            taken.append((row, need))
        return True

    def _row_for(self, run: RunView) -> _FreePlace | None:
        if sameness(run.task) in self._full:
            return None
        own = self._rows.get(self._goes[run.id]) if run.id in self._goes else None
        if own is not None and _fits(run, own):
            return own
        return next((row for row in self._rows.values() if _fits(run, row)), None)


def _need(run: RunView, row: _FreePlace) -> Resources:
    return run.task.demand_on(row.offering.type.family) or NOTHING


def _fits(run: RunView, row: _FreePlace) -> bool:
    need = run.task.demand_on(row.offering.type.family)
    return need is not None and need.fits(row.free)


def fitting(
    order: Sequence[PlacementGroup], rooms: PlannedRoom, holds_up: Callable[[PlacementGroup], bool]
) -> tuple[list[PlacementGroup], bool]:
    """Groups that fit, each into the room that those before have left.

    Args:
        order: The waiting groups.
        rooms: The free room.
        holds_up: Whether no group may take room before one that does not fit.

    Returns:
        The groups, and whether one of them holds up all others.
    """
    fits = []
    for group in order:
        if rooms.put(group):
            fits.append(group)
        elif holds_up(group):
            return fits, True
    return fits, False
