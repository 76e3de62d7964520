"""What is free on members of pools, grouped so that look-ups do not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eva_master.control.standing.queue import Shape
from eva_master.model.ids import Family, InstanceId
from eva_master.model.resources import Resources


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on a member.

    Attributes:
        marks: Numbers of the claims that are limited to named members, this one among them.
    """

    pool: str
    family: Family
    free: Resources
    marks: frozenset[int] = frozenset()


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

    def find(self, pools: Iterable[str], shape: Shape, mark: int | None) -> InstanceId | None:
        """A member with room for a task: of the first pool that has one, where least is free.

        Args:
            pools: Names, the preferred ones first.
            shape: What the task needs.
            mark: The number of a claim, if it is limited to members with its mark.
        """
        needs = dict(shape)
        for pool in pools:
            fitting = [
                room
                for room in self._alike.get(pool, ())
                if (mark is None or mark in room.marks)
                and (need := needs.get(room.family)) is not None
                and need.fits(room.free)
            ]
            if fitting:
                tightest = min(fitting, key=_size)
                return next(iter(self._alike[pool][tightest]))
        return None


def _size(room: Room) -> tuple[int, int, int, str]:
    free = room.free
    return free.gpus, free.milli_cpus, free.memory_mib, room.family
