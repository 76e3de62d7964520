"""What has to be placed together, and placing it so that no gang is split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Hold
from eva_master.model.planning.snapshot import JobView, RunView, Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.configuration.unplaced_reason import why_unplaced


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """Waiting task runs that get a place all together or not at all."""

    job: JobView
    runs: tuple[RunView, ...]


def waiting(snapshot: Snapshot) -> list[PlacementGroup]:
    """What has no place on a live instance and may be given one; the most urgent first."""
    live = {view.id for view in snapshot.instances}
    without: dict[str, list[RunView]] = {}
    for run in snapshot.runs:
        if not run.pinned and run.instance not in live:
            without.setdefault(run.job, []).append(run)
    if not without:
        return []
    jobs = [job for job in snapshot.jobs if job.id in without]
    return [
        PlacementGroup(job, runs)
        for job in sorted(jobs, key=lambda job: (-job.priority, job.submitted_ms, job.id))
        for runs in _together(job, without[job.id])
    ]


def _together(job: JobView, runs: list[RunView]) -> list[tuple[RunView, ...]]:
    return [tuple(runs)] if job.kind is JobKind.GANG else [(run,) for run in runs]


PlaceGroups = Callable[[Sequence[PlacementGroup]], None]
"""Puts as many task runs of some groups on instances as it can."""


@dataclass(frozen=True, slots=True)
class UnplacedGroup:
    """A group that has no place, and the task run that found none."""

    group: PlacementGroup
    run: RunView


def place(
    instances: OpenInstances, groups: Sequence[PlacementGroup], placing: PlaceGroups
) -> list[UnplacedGroup]:
    """Place groups, each of them whole.

    A group of which only some task runs find room is taken out, and the others are placed anew.
    Those that were taken out are then tried one by one, in order.

    Args:
        instances: Where to.
        groups: The most urgent first.
        placing: How.

    Returns:
        What has no place, in the order of the groups.
    """
    mark, unplaced = instances.mark(), {}
    tried, split = list(enumerate(groups)), []
    while tried:
        placing([group for _, group in tried])
        parted = [
            item for item in tried if 0 < len(_missing(instances, item[1])) < len(item[1].runs)
        ]
        if not parted:
            break
        instances.back(mark)
        split.extend(parted)
        tried = [item for item in tried if item not in parted]
    for number, group in tried:
        if missing := _missing(instances, group):
            unplaced[number] = UnplacedGroup(group, missing[0])
    for number, group in sorted(split, key=lambda item: item[0]):
        mark = instances.mark()
        placing([group])
        if missing := _missing(instances, group):
            instances.back(mark)
            unplaced[number] = UnplacedGroup(group, missing[0])
    return [one for _, one in sorted(unplaced.items(), key=lambda item: item[0])]


def _missing(instances: OpenInstances, group: PlacementGroup) -> list[RunView]:
    return [run for run in group.runs if run.id not in instances.row_of]


def holds(snapshot: Snapshot, unplaced: Sequence[UnplacedGroup]) -> list[Hold]:
    """Say why groups wait: what their tasks could run on is not to be had."""
    told: list[Hold] = []
    for one in unplaced:
        why = why_unplaced(one.run.task.demand, snapshot.catalog, snapshot.now_ms)
        why = why or "no room at present"
        for run in one.group.runs:
            alone = run.id == one.run.id
            told.append(Hold(run.id, why if alone else f"its gang waits for {one.run.id}: {why}"))
    return told
