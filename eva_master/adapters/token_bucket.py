"""A token bucket, the one way in which rates are limited."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Tokens that come at a rate, up to a number. One thread uses it.

    Args:
        burst: Number of tokens that it holds at most, and at the beginning.
        per_s: Tokens that come each second.
        clock: A monotonic clock in seconds.
    """

    def __init__(
        self, burst: float, per_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._per_s = per_s
        self._clock = clock
        self._at = clock()
        self._tokens = burst
        self._speed = 1.0

    @property
    def tokens(self) -> float:
        """Present tokens; fewer than none if some were taken ahead of time."""
        now = self._clock()
        gained = (now - self._at) * self._per_s * self._speed
        self._tokens, self._at = min(self._burst, self._tokens + gained), now
        return self._tokens

    @property
    def speed(self) -> float:
        """Share of the rate at which tokens come."""
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        self._tokens, self._speed = self.tokens, speed

    def take(self, tokens: float = 1) -> float:
        """Take tokens, possibly future ones; returns the seconds to wait for them."""
        self._tokens = self.tokens - tokens
        return max(0.0, -self._tokens / (self._per_s * self._speed))

    def pour_out(self) -> None:
        """Lose all tokens that are there."""
        self._tokens = min(self.tokens, 0.0)
