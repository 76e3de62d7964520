"""Limits how fast the messages of one worker are read."""

from __future__ import annotations

import time
from collections.abc import Callable

from eva_master.adapters.token_bucket import TokenBucket

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
        self._bucket = TokenBucket(_PARTS_AT_ONCE, _PARTS_PER_S, now)

    def pause_s(self, parts: int) -> float:
        """How long to read nothing after a message of so many parts, in seconds."""
        return self._bucket.take(parts)
