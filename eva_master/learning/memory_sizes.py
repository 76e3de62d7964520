"""How much memory instances of a type have for tasks: as listed, and as workers measure it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import Catalog

_LEAST_PERCENT, _MOST_PERCENT = 80, 111
"""A measured size counts within these percentages of the listed one."""
_NEWS_PERCENT = 1
"""Machines differ by a few pages. Only a difference above this is a new size."""


@dataclass(frozen=True, slots=True)
class MemorySizes:
    """Mebibytes that tasks may use, by instance type.

    Attributes:
        listed: As the catalog has it.
        measured: As workers have measured it: the least of them, until machines have more.
    """

    listed: Mapping[str, int]
    measured: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog) -> MemorySizes:
        """Sizes of which only the catalog is known."""
        return cls({offering.type.name: offering.type.capacity.memory_mib for offering in catalog})

    def restored(self, measured: object) -> MemorySizes:
        """Sizes of the catalog, with the measured ones read from the journal."""
        if not isinstance(measured, dict):
            return self
        return replace(self, measured={name: int(str(size)) for name, size in measured.items()})

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
