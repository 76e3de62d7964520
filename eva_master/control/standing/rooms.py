"""What is free on members of pools, grouped so that look-ups do not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eva_master.control.standing.queue import Shape
from eva_master.model.ids import Family, InstanceId
from eva_master.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on a member."""

    pool: str
    family: Family
    free: Resources

    def fits(self, needs: Mapping[Family, Resources]) -> bool:
        """Whether a task finds room, by what it needs on each family."""
        need = needs.get(self.family)
        return need is not None and need.fits(self.free)


_Size = tuple[int, int, int, Family]
"""What is free, and the family: rooms of one pool with the same are alike."""


class Rooms:
    """Members by what is free on them; those that are alike are looked at once."""

    def __init__(self) -> None:
        self._of: dict[InstanceId, tuple[Room, _Size]] = {}
        self._alike: dict[str, dict[_Size, dict[InstanceId, None]]] = {}

    def __contains__(self, instance: InstanceId) -> bool:
        return instance in self._of

    def get(self, instance: InstanceId) -> Room | None:
        """What is free on a member; `None` if it takes nobody."""
        known = self._of.get(instance)
        return None if known is None else known[0]

    def put(self, instance: InstanceId, room: Room) -> None:
        """Add a member, or say what is free on it now."""
        before, size = self._of.get(instance), _size(room)
        if before is not None:
            if before[1] == size and before[0].pool == room.pool:
                return
            self.drop(instance)
        self._of[instance] = room, size
        self._alike.setdefault(room.pool, {}).setdefault(size, {})[instance] = None

    def drop(self, instance: InstanceId) -> None:
        """Remove a member; harmless if it is not there."""
        known = self._of.pop(instance, None)
        if known is None:
            return
        room, size = known
        alike = self._alike[room.pool]
        there = alike[size]
        del there[instance]
        if not there:
            del alike[size]

    def clear(self) -> None:
        """Remove all members at once."""
        self._of.clear()
        self._alike.clear()

    def find(self, pools: Iterable[str], shape: Shape) -> InstanceId | None:
        """A member with room for a task: of the first pool that has one, where least is free.

        Args:
            pools: Names, the preferred ones first.
            shape: What the task needs.
        """
        needs = dict(shape)
        for pool in pools:
            alike = self._alike.get(pool, {})
            fitting = [size for size in alike if _has_room(size, needs)]
            if fitting:
                return next(iter(alike[min(fitting)]))
        return None

    def find_among(
        self, members: Iterable[InstanceId], pools: Sequence[str], shape: Shape
    ) -> InstanceId | None:
        """As `find`, of some members alone."""
        needs = dict(shape)
        found = (
            (pools.index(known[0].pool), known[1], member)
            for member in members
            if (known := self._of.get(member)) is not None
            and known[0].pool in pools
            and _has_room(known[1], needs)
        )
        best = min(found, default=None)
        return None if best is None else best[2]


def _has_room(size: _Size, needs: Mapping[Family, Resources]) -> bool:
    gpus, milli_cpus, memory_mib, family = size
    need = needs.get(family)
    return (
        need is not None
        and need.milli_cpus <= milli_cpus
        and need.memory_mib <= memory_mib
        and need.gpus <= gpus
    )


def _size(room: Room) -> _Size:
    free = room.free
    return free.gpus, free.milli_cpus, free.memory_mib, room.family
