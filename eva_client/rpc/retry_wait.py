"""Waits before a master that is away is asked again."""

from __future__ import annotations

from typing import Final, Protocol

from eva_wire.values.errors import EvaError


class RetryWait(Protocol):
    """Waits before a master that is away is asked again."""

    def pause(self, error: EvaError) -> None:
        """Wait a little; raises the error if that took too long already."""
        ...

    def restore(self) -> None:
        """Begin anew, since the master has answered."""
        ...


class _Impatience:
    """See `IMPATIENCE`."""

    def pause(self, error: EvaError) -> None:
        """Raises the error."""
        raise error

    def restore(self) -> None:
        """Nothing is to be restored."""


IMPATIENCE: Final = _Impatience()
"""Never waits for a master."""
