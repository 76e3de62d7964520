"""A change of a working configuration that is tried and may be undone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eva_master.packing.local_search.working_configuration import (
    InstanceSlot,
    SavedInstances,
    SlotBefore,
    WorkingConfiguration,
)


class Trial:
    """Takes instances apart; what is then put where may be undone.

    Args:
        working: The configuration that the instances are part of.
        dismantled: The instances.

    Attributes:
        pool: The task runs that have no place now.
    """

    def __init__(self, working: WorkingConfiguration, dismantled: Sequence[InstanceSlot]) -> None:
        self._working = working
        self.pool = [run for slot in dismantled for run in slot.movable]
        places = [slot for slot in dismantled for _ in slot.movable]
        self._before = SavedInstances(
            working.total,
            dict(zip(self.pool, places, strict=True)),
            working.moves_of(self.pool),
        )
        self._slots: dict[InstanceSlot, SlotBefore] = {}
        for slot in dismantled:
            self._slots[slot] = (slot.load, slot.movable.copy(), slot.gang_members.copy())
            working.take_apart(slot)

    @property
    def touched(self) -> Collection[InstanceSlot]:
        """The instances that were taken apart or that something was put on."""
        return self._slots.keys()

    def put(self, run: int, slot: InstanceSlot) -> None:
        """Put a task run of the pool on an instance."""
        if slot not in self._slots:
            self._slots[slot] = (slot.load, slot.movable.copy(), slot.gang_members.copy())
        self._working.put(run, slot)

    def undo(self) -> None:
        """Make everything as it was before."""
        self._working.restore(self._before, self._slots)
