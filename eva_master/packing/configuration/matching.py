"""Which live instance becomes which packed set, so that moving costs the fewest dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.packing.configuration.assignment import assigned
from eva_master.packing.greedy.algorithm1 import PackedSet
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.interference.throughput import Ints
from eva_wire.values.ids import InstanceId, OfferingId

_CELLS_PER_ASSIGNMENT = 1_000_000
"""Cells of an assignment problem; beyond that, sets that are there already are taken out."""

MoveCostsByClass = Mapping[int, tuple[int, ...]]
"""Per class what each resident's move would cost, the dearest first."""


@dataclass(frozen=True, slots=True)
class Reusable:
    """A live instance that may be filled anew.

    Attributes:
        residents: Task runs on it that may stay: the costs of their moves, by class.
    """

    id: InstanceId
    offering: OfferingId
    ready: bool
    residents: MoveCostsByClass


def match(
    sets: Sequence[PackedSet], live: Sequence[Reusable]
) -> list[tuple[TaskSet, InstanceId | PackedSet]]:
    """Assign packed sets to live instances of their offering.

    The assignment saves the most dollars of migration; of equals it moves the fewest tasks, then it
    uses instances that are ready. Every usable live instance is used, since that saves a launch.

    Args:
        sets: The packed sets.
        live: The live instances, all of them free for use.

    Returns:
        Every instance of the sets: its contents, and the live instance that becomes it, or else its
        set, to be launched.
    """
    missing = [packed.times for packed in sets]
    matched: list[tuple[TaskSet, InstanceId | PackedSet]] = []
    wanted = {packed.offering.id for packed in sets}
    for offering in sorted(wanted & {instance.offering for instance in live}):
        here = sorted((i for i in live if i.offering == offering), key=lambda i: i.id)
        numbers = [n for n, packed in enumerate(sets) if packed.offering.id == offering]
        for number, instance in _assigned(sets, {n: missing[n] for n in numbers}, here):
            matched.append((sets[number].task_set, instance.id))
            missing[number] -= 1
    for packed, times in zip(sets, missing, strict=True):
        matched.extend((packed.task_set, packed) for _ in range(times))
    return matched


def _assigned(
    sets: Sequence[PackedSet], wanted: dict[int, int], live: list[Reusable]
) -> list[tuple[int, Reusable]]:
    """Pairs of set and live instance; all are of one offering."""
    pairs: list[tuple[int, Reusable]] = []
    if sum(wanted.values()) * len(live) > _CELLS_PER_ASSIGNMENT:
        pairs, live = _unchanged(sets, wanted, live)
        wanted = dict(wanted)
        for number, _ in pairs:
            wanted[number] -= 1
    while live and any(wanted.values()):
        # More than fits into one problem is done in turns.
        rows = [number for number, times in wanted.items() for _ in range(min(times, len(live)))]
        batch = live[: max(1, _CELLS_PER_ASSIGNMENT // len(rows))]
        for row, column in zip(*assigned(_gains(sets, rows, batch)), strict=True):
            pairs.append((rows[row], batch[column]))
            wanted[rows[row]] -= 1
        live = live[len(batch) :]
    return pairs


def _unchanged(
    sets: Sequence[PackedSet], wanted: Mapping[int, int], live: list[Reusable]
) -> tuple[list[tuple[int, Reusable]], list[Reusable]]:
    """Pair live instances with sets that they hold already; return also the other instances."""
    missing = dict(wanted)
    by_contents = {tuple(sorted(sets[number].task_set.items())): number for number in wanted}
    pairs: list[tuple[int, Reusable]] = []
    others: list[Reusable] = []
    for instance in live:
        held = tuple(sorted((c, len(each)) for c, each in instance.residents.items()))
        number = by_contents.get(held)
        if number is not None and missing[number]:
            missing[number] -= 1
            pairs.append((number, instance))
        else:
            others.append(instance)
    return pairs, others


def _gains(sets: Sequence[PackedSet], rows: Sequence[int], live: Sequence[Reusable]) -> Ints:
    """Savings of putting a set (row) on an instance (column); exact in 53 bits.

    Equal sets and equal residents are compared once.
    """
    # A difference of one task, or of readiness, counts less than a micro-dollar.
    tasks = 1 + sum(len(each) for instance in live for each in instance.residents.values())
    alike: dict[tuple[tuple[int, tuple[int, ...]], ...], int] = {}
    alike_of = [
        alike.setdefault(tuple(sorted(instance.residents.items())), len(alike)) for instance in live
    ]
    numbers = sorted(set(rows))
    table = np.zeros((len(numbers), len(alike)), dtype=np.int64)
    for line, number in enumerate(numbers):
        task_set = sets[number].task_set
        for residents, number_alike in alike.items():
            kept = [each[: task_set.get(task_class, 0)] for task_class, each in residents]
            stayers = sum(len(each) for each in kept)
            table[line, number_alike] = sum(map(sum, kept)) * tasks + stayers
    lines = {number: line for line, number in enumerate(numbers)}
    gains: Ints = 2 * table[[lines[number] for number in rows]][:, alike_of]
    return gains + np.array([instance.ready for instance in live], dtype=np.int64)
