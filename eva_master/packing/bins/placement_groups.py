"""Task runs that get places together, placed so that no gang is split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Hold
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.between_places import between_places
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.precedence import precedence
from eva_wire.values.bounds import JobKind


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """Waiting task runs that get a place all together or not at all."""

    job: JobView
    runs: tuple[RunView, ...]


def waiting(snapshot: Snapshot) -> list[PlacementGroup]:
    """Groups without a place on a live instance that may be given one, the most urgent first."""
    return [group for job, runs in waiting_runs(snapshot) for group in grouped(job, runs)]


def waiting_runs(snapshot: Snapshot) -> list[tuple[JobView, list[RunView]]]:
    """Jobs with their task runs of such groups, the most urgent job first."""
    live = {view.id for view in snapshot.instances}
    without: dict[str, list[RunView]] = {}
    for run in snapshot.runs:
        if not run.pinned and run.instance not in live:
            without.setdefault(run.job, []).append(run)
    if not without:
        return []
    for job in between_places(snapshot, live):
        without.pop(job, None)
    jobs = [job for job in snapshot.jobs if job.id in without]
    return [(job, without[job.id]) for job in sorted(jobs, key=precedence)]


def grouped(job: JobView, runs: Sequence[RunView]) -> list[PlacementGroup]:
    """Some task runs of a job as groups: those of a gang together, others each by itself."""
    if job.spec.kind is JobKind.GANG:
        return [PlacementGroup(job, tuple(runs))]
    return [PlacementGroup(job, (run,)) for run in runs]


NO_ROOM = "no room at present"
"""Reason that a user is told of a task when nothing else is known to be in its way."""
PlaceGroups = Callable[[Sequence[PlacementGroup]], None]
"""Puts as many task runs of some groups on instances as it can."""


@dataclass(frozen=True, slots=True)
class UnplacedGroup:
    """A group that has no place, and the task run that found none.

    Attributes:
        why: Reason shown to a user unless another obstacle is known.
    """

    group: PlacementGroup
    run: RunView
    why: str = NO_ROOM


def place(
    instances: OpenInstances, groups: Sequence[PlacementGroup], placing: PlaceGroups
) -> list[UnplacedGroup]:
    """Place groups, each of them whole.

    A group of which only some task runs find room is taken out, and the others are placed anew.
    Groups taken out are then tried one by one, in order. Groups that found no room before others
    were placed are tried again too, since instances bought for those may have room to spare.

    Args:
        instances: The instances to place them on.
        groups: The most urgent first.
        placing: Function that places groups.

    Returns:
        The groups without a place, in their order.
    """
    mark, tried, split = instances.mark(), list(enumerate(groups)), set[int]()
    while tried:
        placing([group for _, group in tried])
        parted = {
            number
            for number, group in tried
            if 0 < len(_missing(instances, group)) < len(group.runs)
        }
        if not parted:
            break
        instances.back(mark)
        split |= parted
        tried = [item for item in tried if item[0] not in parted]
    unplaced = {number: group for number, group in enumerate(groups) if _missing(instances, group)}
    last = max((number for number, _ in tried if number not in unplaced), default=-1)
    again = [number for number in unplaced if number in split or number < last]
    while placed := _placed_alone(instances, groups, again, placing):
        unplaced = {number: group for number, group in unplaced.items() if number not in placed}
        again = [number for number in unplaced if number < max(placed)]
    return [UnplacedGroup(group, _missing(instances, group)[0]) for group in unplaced.values()]


def _placed_alone(
    instances: OpenInstances,
    groups: Sequence[PlacementGroup],
    numbers: Sequence[int],
    placing: PlaceGroups,
) -> set[int]:
    """Place some of the groups one by one; returns the numbers of those that found a place."""
    placed = set()
    for number in numbers:
        mark = instances.mark()
        placing([groups[number]])
        if _missing(instances, groups[number]):
            instances.back(mark)
        else:
            placed.add(number)
    return placed


def _missing(instances: OpenInstances, group: PlacementGroup) -> list[RunView]:
    return [run for run in group.runs if run.id not in instances.row_of]


def holds(snapshot: Snapshot, unplaced: Sequence[UnplacedGroup]) -> list[Hold]:
    """Reasons why groups wait: no offering that could host their tasks is available."""
    entries: list[Hold] = []
    for group in unplaced:
        why = why_unplaced(group.run.task.demand, snapshot.catalog, snapshot.now_ms)
        why = why or group.why
        for run in group.group.runs:
            alone = run.id == group.run.id
            entries.append(
                Hold(run.id, why if alone else f"its gang waits for {group.run.id}: {why}")
            )
    return entries
