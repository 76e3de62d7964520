"""Tenants: whom jobs are accounted to, by the names of their owners."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.users import is_owner

_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ANY = "*"


def is_tenant(text: str) -> bool:
    """Whether a text can name a tenant."""
    return _TENANT.fullmatch(text) is not None


def can_match(entry: str) -> bool:
    """Whether an entry, a name or a pattern with one ``*``, matches any possible owner.

    The star may stand for nothing.
    """
    return any(is_owner(entry.replace(_ANY, some, 1)) for some in ("", "a"))


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A prefix and a suffix of names."""

    prefix: str
    suffix: str
    tenant: str

    @classmethod
    def of(cls, entry: str, tenant: str) -> _Pattern:
        prefix, _, suffix = entry.partition(_ANY)
        return cls(prefix, suffix, tenant)

    @property
    def rank(self) -> tuple[int, int, str, str]:
        """The first of two that match is the longer one, then the one with the longer prefix.

        Two of the same rank are the same pattern.
        """
        length = len(self.prefix) + len(self.suffix)
        return -length, -len(self.prefix), self.prefix, self.suffix

    def matches(self, owner: str) -> bool:
        return (
            len(owner) >= len(self.prefix) + len(self.suffix)
            and owner.startswith(self.prefix)
            and owner.endswith(self.suffix)
        )


@dataclass(frozen=True, slots=True)
class OwnerPatterns:
    """Some owners.

    Attributes:
        entries: Names of owners, and patterns with one ``*``.
    """

    entries: tuple[str, ...]
    _patterns: tuple[_Pattern, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        patterns = tuple(_Pattern.of(entry, "") for entry in self.entries if _ANY in entry)
        object.__setattr__(self, "_patterns", patterns)

    def match(self, owner: str) -> bool:
        """Whether an owner has an entry here, by name or by pattern."""
        return owner in self.entries or any(pattern.matches(owner) for pattern in self._patterns)


@dataclass(frozen=True, slots=True)
class TenantRules:
    """Assignment of owners to tenants.

    Attributes:
        owners: The entries of each tenant: names of owners, and patterns with one ``*``. No entry
            occurs twice.
    """

    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _names: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _patterns: tuple[_Pattern, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        entries = [(entry, tenant) for tenant, of in self.owners.items() for entry in of]
        patterns = (_Pattern.of(*entry) for entry in entries if _ANY in entry[0])
        object.__setattr__(self, "_names", {e: t for e, t in entries if _ANY not in e})
        object.__setattr__(self, "_patterns", tuple(sorted(patterns, key=lambda it: it.rank)))

    @property
    def names(self) -> tuple[str, ...]:
        """All tenants, the default one last."""
        return (*self.owners, DEFAULT_TENANT)

    def of(self, owner: str) -> str:
        """The tenant of an owner: by name, else by the longest pattern, else the default one."""
        if (named := self._names.get(owner)) is not None:
            return named
        tenants = (pattern.tenant for pattern in self._patterns if pattern.matches(owner))
        return next(tenants, DEFAULT_TENANT)


def claimed_twice(owners: Mapping[str, Iterable[str]]) -> list[tuple[str, int, str]]:
    """Entries that an earlier one repeats.

    Args:
        owners: As `TenantRules.owners` has them.

    Returns:
        The tenant and the place of each such entry, and the tenant that has it already.
    """
    first: dict[str, str] = {}
    repeats = []
    for tenant, entries in owners.items():
        for place, entry in enumerate(entries):
            if entry in first:
                repeats.append((tenant, place, first[entry]))
            first.setdefault(entry, tenant)
    return repeats
