"""How much memory and disk instances of a type have: as listed, and as workers measure it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from eva_master.model.catalog import Catalog, Purchase
from eva_master.model.changes import Deferred

_LEAST_PERCENT, _MOST_PERCENT = 80, 111
"""A measured size counts within these percentages of the listed one."""
_NEWS_PERCENT = 1
"""Machines differ by a few pages. Only a difference above this is a new size."""


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Mebibytes of memory that tasks may use, by instance type, and of disk of owned nodes.

    Attributes:
        listed: As the catalog has it.
        measured: As workers have measured it: the least of them, until machines have more.
        unstated: Types of owned nodes whose disk the operator does not state.
        disks: Their disks as workers have measured them, the least of each type.
    """

    listed: Mapping[str, int]
    measured: Mapping[str, int] = field(default_factory=dict)
    unstated: frozenset[str] = frozenset()
    disks: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog) -> MemorySizes:
        """Sizes of which only the catalog is known."""
        listed = {offering.type.name: offering.type.capacity.memory_mib for offering in catalog}
        unstated = frozenset(
            offering.type.name
            for offering in catalog
            if offering.purchase is Purchase.OWNED and not offering.type.capacity.disk_mib
        )
        return cls(listed, unstated=unstated)

    def restored(self, measured: object, disks: object) -> MemorySizes:
        """Sizes of the catalog, with the measured ones read from the journal."""
        return replace(self, measured=_read(measured), disks=_read(disks))

    @property
    def documents(self) -> Mapping[str, Deferred]:
        """The documents in which the journal keeps the measured ones."""
        return {
            "memory_sizes": partial(dict, self.measured),
            "disk_sizes": partial(dict, self.disks),
        }

    def wanted(self, machine: str) -> int | None:
        """Memory that instances of a type should have; `None` if the catalog has no such type."""
        listed = self.listed.get(machine)
        if listed is None or machine not in self.measured:
            return listed
        within = min(self.measured[machine], listed * _MOST_PERCENT // 100)
        return max(within, listed * _LEAST_PERCENT // 100)

    def heard(self, machine: str, mib: int) -> MemorySizes | None:
        """The sizes after a worker has registered; `None` if they do not change."""
        reported = self.measured.get(machine)
        before = self.listed.get(machine) if reported is None else reported
        if before is None or mib <= 0 or before <= mib <= before * (100 + _NEWS_PERCENT) // 100:
            return None
        return replace(self, measured={**self.measured, machine: mib})

    def heard_disk(self, machine: str, mib: int) -> MemorySizes | None:
        """The sizes after the worker of an owned node has registered; `None` if none changes."""
        if machine not in self.unstated or not 0 < mib < self.disks.get(machine, mib + 1):
            return None
        return replace(self, disks={**self.disks, machine: mib})


def _read(sizes: object) -> dict[str, int]:
    if not isinstance(sizes, dict):
        return {}
    return {str(name): int(str(size)) for name, size in sizes.items()}
