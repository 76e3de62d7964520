"""Groups of what hangs together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Components(Generic[K]):
    """Names in groups, which are joined one after the other."""

    def __init__(self) -> None:
        self._leaders: dict[K, K] = {}

    def __iter__(self) -> Iterator[K]:
        """All names that were ever mentioned, in that order."""
        return iter(tuple(self._leaders))

    def leader(self, name: K) -> K:
        """The name that a group goes by until it is joined with another one."""
        leaders = self._leaders
        while (above := leaders.setdefault(name, name)) != name:
            # Paths are halved, so that they stay short however large a group is.
            leaders[name] = name = leaders[above]
        return name

    def join(self, name: K, other: K) -> None:
        """Make one group of two."""
        self._leaders[self.leader(name)] = self.leader(other)
