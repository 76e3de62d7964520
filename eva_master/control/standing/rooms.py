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


class Rooms:
    """Members by what is free on them; those that are alike are looked at once."""

    def __init__(self) -> None:
        self._of: dict[InstanceId, Room] = {}
        self._alike: dict[str, dict[Room, dict[InstanceId, None]]] = {}

    def __contains__(self, instance: InstanceId) -> bool:
        return instance in self._of

    def get(self, instance: InstanceId) -> Room | None:
        """What is free on a member; `None` if it takes nobody."""
        return self._of.get(instance)

    def put(self, instance: InstanceId, room: Room) -> None:
        """Add a member, or say what is free on it now."""
        if self._of.get(instance) == room:
            return
        self.drop(instance)
        self._of[instance] = room
        self._alike.setdefault(room.pool, {}).setdefault(room, {})[instance] = None

    def drop(self, instance: InstanceId) -> None:
        """Remove a member; harmless if it is not there."""
        room = self._of.pop(instance, None)
        if room is None:
            return
        alike = self._alike[room.pool]
        del alike[room][instance]
        if not alike[room]:
            del alike[room]

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
            fitting = [room for room in self._alike.get(pool, ()) if room.fits(needs)]
            if fitting:
                tightest = min(fitting, key=_size)
                return next(iter(self._alike[pool][tightest]))
        return None

    def find_among(
        self, members: Iterable[InstanceId], pools: Sequence[str], shape: Shape
    ) -> InstanceId | None:
        """As `find`, of some members alone."""
        needs = dict(shape)
        found = (
            (pools.index(room.pool), _size(room), member)
            for member in members
            if (room := self._of.get(member)) and room.pool in pools and room.fits(needs)
        )
        best = min(found, default=None)
        return None if best is None else best[2]


def _size(room: Room) -> tuple[int, int, int, str]:
    free = room.free
    return free.gpus, free.milli_cpus, free.memory_mib, room.family
