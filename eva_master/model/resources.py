"""Quantities of GPUs, CPU time, memory and disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eva_master.model.values import quick


@quick
@dataclass(frozen=True, slots=True, order=True)
class Resources:
    """A demand or a capacity, in integers so that sums are exact.

    Attributes:
        gpus: Whole GPUs.
        milli_cpus: Thousandths of a vCPU.
        memory_mib: Mebibytes of memory.
        disk_mib: Mebibytes of disk, beside those for images.
    """

    gpus: int = 0
    milli_cpus: int = 0
    memory_mib: int = 0
    disk_mib: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.gpus + other.gpus,
            self.milli_cpus + other.milli_cpus,
            self.memory_mib + other.memory_mib,
            self.disk_mib + other.disk_mib,
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.gpus - other.gpus,
            self.milli_cpus - other.milli_cpus,
            self.memory_mib - other.memory_mib,
            self.disk_mib - other.disk_mib,
        )

    def fits(self, room: Resources) -> bool:
        """Whether this demand fits into `room` in every dimension."""
        return (
            self.gpus <= room.gpus
            and self.milli_cpus <= room.milli_cpus
            and self.memory_mib <= room.memory_mib
            and self.disk_mib <= room.disk_mib
        )

    def shortfall(self, room: Resources) -> Resources:
        """The resources that `room` lacks to hold this demand; zero where it has enough."""
        return Resources(
            max(0, self.gpus - room.gpus),
            max(0, self.milli_cpus - room.milli_cpus),
            max(0, self.memory_mib - room.memory_mib),
            max(0, self.disk_mib - room.disk_mib),
        )

    def times(self, count: int) -> Resources:
        """So many of this together."""
        return Resources(
            self.gpus * count,
            self.milli_cpus * count,
            self.memory_mib * count,
            self.disk_mib * count,
        )

    def times_in(self, room: Resources) -> int | None:
        """How often `room` holds this demand at once; `None` if it is nothing."""
        parts = (
            (self.gpus, room.gpus),
            (self.milli_cpus, room.milli_cpus),
            (self.memory_mib, room.memory_mib),
            (self.disk_mib, room.disk_mib),
        )
        return min((room_part // each for each, room_part in parts if each), default=None)

    def covering(self, other: Resources) -> Resources:
        """Of each resource as much as the one of both has that has more."""
        return Resources(
            max(self.gpus, other.gpus),
            max(self.milli_cpus, other.milli_cpus),
            max(self.memory_mib, other.memory_mib),
            max(self.disk_mib, other.disk_mib),
        )

    def __str__(self) -> str:
        cpus = f"{self.milli_cpus / 1000:g}"
        disk = f", {self.disk_mib / 1024:g} GiB of disk" if self.disk_mib else ""
        return f"{self.gpus} GPUs, {cpus} vCPUs, {self.memory_mib / 1024:g} GiB{disk}"


NOTHING = Resources()


def total(amounts: Iterable[Resources]) -> Resources:
    """The sum of some amounts."""
    gpus = milli_cpus = memory_mib = disk_mib = 0
    for amount in amounts:
        gpus += amount.gpus
        milli_cpus += amount.milli_cpus
        memory_mib += amount.memory_mib
        disk_mib += amount.disk_mib
    return Resources(gpus, milli_cpus, memory_mib, disk_mib)
