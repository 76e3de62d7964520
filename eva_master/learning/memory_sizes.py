"""How much memory instances of a type have for tasks: as listed, and as workers measure it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.catalog import Catalog

_LEAST_PERCENT, _MOST_PERCENT = 80, 111
"""What is measured counts as far as it is between these shares of what is listed."""
_NEWS_PERCENT = 1
"""Machines differ by a few pages. Only what is so much more than before is another size."""


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
        return cls({it.type.name: it.type.capacity.memory_mib for it in catalog})

    def restored(self, measured: object) -> MemorySizes:
        """The same sizes with what was measured, as the journal has it."""
        if not isinstance(measured, dict):
            return self
        return replace(self, measured={name: int(str(it)) for name, it in measured.items()})

    def wanted(self, machine: str) -> int | None:
        """What instances of a type are to have; `None` if it is not in the catalog."""
        listed = self.listed.get(machine)
        if listed is None or machine not in self.measured:
            return listed
        within = min(self.measured[machine], listed * _MOST_PERCENT // 100)
        return max(within, listed * _LEAST_PERCENT // 100)

    def heard(self, machine: str, mib: int) -> MemorySizes | None:
        """The sizes after a worker has registered with so much; `None` if that is no news."""
        known = self.measured.get(machine)
        before = self.listed.get(machine) if known is None else known
        if before is None or mib <= 0 or before <= mib <= before * (100 + _NEWS_PERCENT) // 100:
            return None
        return replace(self, measured={**self.measured, machine: mib})
