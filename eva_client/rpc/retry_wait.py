"""Waits before a master that is away is asked again."""

from __future__ import annotations

import threading
import time
from typing import ClassVar, Final, Protocol

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


class Outages:
    """Tells one time that the master is away from the next, for all calls of a client together."""

    OVER_S: ClassVar[float] = 10.0
    """An outage is over when no call has failed for so long: a master that goes away may answer
    once more, and streams break one after the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed_s: float | None = None

    def failed(self) -> bool:
        """Take in that a call has failed; returns whether an outage begins with it."""
        with self._lock:
            last_s, self._failed_s = self._failed_s, time.monotonic()
            return last_s is None or self._failed_s > last_s + self.OVER_S
