"""What has to be placed together, and placing it so that no gang is split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eva_master.model.job import JobKind
from eva_master.model.planning.plan import Hold
from eva_master.model.planning.snapshot import CopyView, JobView, Snapshot
from eva_master.packing.bins.open_instances import Rooms
from eva_master.packing.configuration.unplaced_reason import why_unplaced


@dataclass(frozen=True, slots=True)
class Unit:
    """Waiting copies that get a place all together or not at all."""

    job: JobView
    copies: tuple[CopyView, ...]


def waiting(snapshot: Snapshot) -> list[Unit]:
    """What has no place on a live instance and may be given one; the most urgent first."""
    live = {view.id for view in snapshot.instances}
    without: dict[str, list[CopyView]] = {}
    for copy in snapshot.copies:
        if not copy.pinned and copy.instance not in live:
            without.setdefault(copy.job, []).append(copy)
    if not without:
        return []
    jobs = [job for job in snapshot.jobs if job.id in without]
    return [
        Unit(job, copies)
        for job in sorted(jobs, key=lambda job: (-job.priority, job.submitted_ms, job.id))
        for copies in _together(job, without[job.id])
    ]


def _together(job: JobView, copies: list[CopyView]) -> list[tuple[CopyView, ...]]:
    return [tuple(copies)] if job.kind is JobKind.GANG else [(copy,) for copy in copies]


Placing = Callable[[Sequence[Unit]], None]
"""Puts as many copies of some units into rooms as it can."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A unit that has no place, and the copy that found none."""

    unit: Unit
    copy: CopyView


def place(rooms: Rooms, units: Sequence[Unit], placing: Placing) -> list[Stuck]:
    """Place units, each of them whole.

    A unit of which only some copies find room is taken out, and the others are placed anew. Those
    that were taken out are then tried one by one, in order.

    Args:
        rooms: Where to.
        units: The most urgent first.
        placing: How.

    Returns:
        What has no place, in the order of the units.
    """
    mark, stuck = rooms.mark(), {}
    tried, split = list(enumerate(units)), []
    while tried:
        placing([unit for _, unit in tried])
        parted = [item for item in tried if 0 < len(_missing(rooms, item[1])) < len(item[1].copies)]
        if not parted:
            break
        rooms.back(mark)
        split.extend(parted)
        tried = [item for item in tried if item not in parted]
    for number, unit in tried:
        if missing := _missing(rooms, unit):
            stuck[number] = Stuck(unit, missing[0])
    for number, unit in sorted(split, key=lambda item: item[0]):
        mark = rooms.mark()
        placing([unit])
        if missing := _missing(rooms, unit):
            rooms.back(mark)
            stuck[number] = Stuck(unit, missing[0])
    return [one for _, one in sorted(stuck.items(), key=lambda item: item[0])]


def _missing(rooms: Rooms, unit: Unit) -> list[CopyView]:
    return [copy for copy in unit.copies if copy.id not in rooms.row_of]


def holds(snapshot: Snapshot, stuck: Sequence[Stuck]) -> list[Hold]:
    """Say why units wait: what their tasks could run on is not to be had."""
    told: list[Hold] = []
    for one in stuck:
        why = why_unplaced(one.copy.task.demand, snapshot.catalog, snapshot.now_ms)
        why = why or "no room at present"
        for copy in one.unit.copies:
            alone = copy.id == one.copy.id
            told.append(Hold(copy.id, why if alone else f"its gang waits for {one.copy.id}: {why}"))
    return told
