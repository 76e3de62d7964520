"""Which live instance becomes which packed set, so that few tasks have to move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_master.model.ids import InstanceId, OfferingId
from eva_master.packing.greedy import PackedSet
from eva_master.packing.problem import Contents

Signature = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Reusable:
    """A live instance that may be filled anew.

    Attributes:
        residents: What is on it now and may stay.
    """

    id: InstanceId
    offering: OfferingId
    ready: bool
    residents: Contents


def match(
    sets: Sequence[PackedSet], live: Sequence[Reusable]
) -> list[tuple[Contents, InstanceId | PackedSet]]:
    """Assign packed sets to live instances of their offering.

    Pairs that share the most tasks come first; every live instance that can be used is used,
    since that saves a launch. Instances with equal residents and equal sets are handled
    together, so that the work depends on how many distinct ones there are.

    Args:
        sets: What is wanted.
        live: What is there, none of it needed otherwise.

    Returns:
        Every wanted instance: its contents, and the live instance that becomes it or else the
        set that it is one of, to be launched.
    """
    unmatched = [packed.times for packed in sets]
    matched: list[tuple[Contents, InstanceId | PackedSet]] = []

    def use(number: int, ids: list[InstanceId]) -> list[InstanceId]:
        used = min(unmatched[number], len(ids))
        matched.extend((sets[number].contents, instance) for instance in ids[:used])
        unmatched[number] -= used
        return ids[used:]

    for offering in sorted({instance.offering for instance in live}):
        here = [instance for instance in live if instance.offering == offering]
        numbers = [n for n, packed in enumerate(sets) if packed.offering.id == offering]
        groups = _grouped(here)
        for number, signature in _by_shared(sets, numbers, list(groups)):
            groups[signature] = use(number, groups[signature])
        rest = {instance for ids in groups.values() for instance in ids}
        spare = [instance.id for instance in sorted(here, key=_readiest) if instance.id in rest]
        for number in numbers:
            spare = use(number, spare)
    for packed, times in zip(sets, unmatched, strict=True):
        matched.extend((packed.contents, packed) for _ in range(times))
    return matched


def _readiest(instance: Reusable) -> tuple[bool, InstanceId]:
    return not instance.ready, instance.id


def _grouped(live: Sequence[Reusable]) -> dict[Signature, list[InstanceId]]:
    """Instances with equal residents; those that are ready come first, then by id."""
    groups: dict[Signature, list[InstanceId]] = {}
    for instance in sorted(live, key=_readiest):
        groups.setdefault(tuple(sorted(instance.residents.items())), []).append(instance.id)
    return groups


def _by_shared(
    sets: Sequence[PackedSet], numbers: Sequence[int], signatures: Sequence[Signature]
) -> list[tuple[int, Signature]]:
    """Pairs of set and residents that share tasks, the one that shares the most first."""
    holding: dict[int, list[tuple[int, int]]] = {}
    for number in numbers:
        for task_class, count in sets[number].contents.items():
            holding.setdefault(task_class, []).append((number, count))
    pairs: list[tuple[int, int, int]] = []
    for row, signature in enumerate(signatures):
        scores: dict[int, int] = {}
        for task_class, residents in signature:
            for number, count in holding.get(task_class, ()):
                scores[number] = scores.get(number, 0) + min(count, residents)
        pairs.extend((-score, number, row) for number, score in scores.items())
    return [(number, signatures[row]) for _, number, row in sorted(pairs)]
