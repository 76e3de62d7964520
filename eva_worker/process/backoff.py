"""Pauses between tries that grow with each failure."""

from __future__ import annotations

import random

FIRST_S = 0.2
LONGEST_S = 10.0

_random = random.SystemRandom()


class Backoff:
    """Pauses that double from 0.2 s to 10 s.

    Args:
        jitter: Whether to draw each pause from its upper half, so that many callers that failed
            together do not try again together.
    """

    def __init__(self, *, jitter: bool = True) -> None:
        self._jitter = jitter
        self.failures = 0

    def next_s(self) -> float:
        """The next pause in seconds."""
        longest = float(min(LONGEST_S, FIRST_S * 2 ** min(self.failures, 16)))
        self.failures += 1
        return _random.uniform(longest / 2, longest) if self._jitter else longest

    def reset(self) -> None:
        """Begin with short pauses again."""
        self.failures = 0
