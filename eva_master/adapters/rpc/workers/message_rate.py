"""Limits how fast the messages of one worker are read."""

from __future__ import annotations

import time
from collections.abc import Callable

_PARTS_PER_S = 5_000
_PARTS_AT_ONCE = 50_000
"""Reports and samples that one worker may send before it has to wait: those of some hundred tasks,
many times over."""


class MessageRate:
    """How fast the messages of one worker are read.

    Args:
        now: A monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._at = now()
        self._left = float(_PARTS_AT_ONCE)

    def pause_s(self, parts: int) -> float:
        """How long to read nothing after a message of so many parts, in seconds."""
        now = self._now()
        gained, self._at = (now - self._at) * _PARTS_PER_S, now
        self._left = min(_PARTS_AT_ONCE, self._left + gained) - parts
        return max(0.0, -self._left / _PARTS_PER_S)
