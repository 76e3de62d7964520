"""Free room on members of pools, grouped so that look-ups do not grow with their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eva_master.control.standing.queue import Shape
from eva_master.model.resources import Resources
from eva_master.model.values import quick
from eva_wire.values.ids import Family, InstanceId


@quick
@dataclass(frozen=True, slots=True)
class MemberRoom:
    """Free room on a member of a pool."""

    pool: str
    family: Family
    free: Resources

    def fits(self, needs: Mapping[Family, Resources]) -> bool:
        """Whether a task finds room, given its needs on each family."""
        need = needs.get(self.family)
        return need is not None and need.fits(self.free)


_Size = tuple[int, int, int, int, Family]
"""Free resources and family: rooms of one pool with equal sizes are alike."""


class MemberGroups:
    """Members grouped by free room; members that are alike are looked at once."""

    def __init__(self) -> None:
        self._of: dict[InstanceId, tuple[MemberRoom, _Size]] = {}
        self._alike: dict[str, dict[_Size, dict[InstanceId, None]]] = {}

    def __contains__(self, instance: InstanceId) -> bool:
        return instance in self._of

    def get(self, instance: InstanceId) -> MemberRoom | None:
        """Free room on a member; `None` if the member takes no task."""
        entry = self._of.get(instance)
        return None if entry is None else entry[0]

    def put(self, instance: InstanceId, room: MemberRoom) -> bool:
        """Add a member, or say what is free on it now; return whether that is news."""
        before, size = self._of.get(instance), _size(room)
        if before is not None:
            if before[1] == size and before[0].pool == room.pool:
                return False
            self.drop(instance)
        self._of[instance] = room, size
        self._alike.setdefault(room.pool, {}).setdefault(size, {})[instance] = None
        return True

    def drop(self, instance: InstanceId) -> None:
        """Remove a member; a missing member is no error."""
        entry = self._of.pop(instance, None)
        if entry is None:
            return
        room, size = entry
        alike = self._alike[room.pool]
        members = alike[size]
        del members[instance]
        if not members:
            del alike[size]

    def clear(self) -> None:
        """Remove all members at once."""
        self._of.clear()
        self._alike.clear()

    def find(self, pools: Iterable[str], shape: Shape) -> InstanceId | None:
        """The member with the least free room for a task, in the first pool that has any.

        Args:
            pools: Names of pools, the preferred ones first.
            shape: The shape of the task.
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
        """A member as found by `find`, among some members only."""
        needs = dict(shape)
        fitting = (
            (pools.index(entry[0].pool), entry[1], member)
            for member in members
            if (entry := self._of.get(member)) is not None
            and entry[0].pool in pools
            and _has_room(entry[1], needs)
        )
        best = min(fitting, default=None)
        return None if best is None else best[2]


def _has_room(size: _Size, needs: Mapping[Family, Resources]) -> bool:
    gpus, milli_cpus, memory_mib, disk_mib, family = size
    need = needs.get(family)
    return (
        need is not None
        and need.milli_cpus <= milli_cpus
        and need.memory_mib <= memory_mib
        and need.disk_mib <= disk_mib
        and need.gpus <= gpus
    )


def _size(room: MemberRoom) -> _Size:
    free = room.free
    return free.gpus, free.milli_cpus, free.memory_mib, free.disk_mib, room.family
