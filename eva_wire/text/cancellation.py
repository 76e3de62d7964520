"""Lets long work of another thread end when nobody waits for its result any more."""

from __future__ import annotations

import threading


class CancelledError(Exception):
    """The work was given up, since nobody waits for it."""


class Cancellation:
    """A switch that is turned once; any thread may turn it and look at it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Have the work end at the next look."""
        self._event.set()

    def check(self) -> None:
        """Look whether the work is still wanted; raises `CancelledError` if it is not."""
        if self._event.is_set():
            raise CancelledError


NEVER_CANCELLED = Cancellation()
"""For work that nobody gives up."""
