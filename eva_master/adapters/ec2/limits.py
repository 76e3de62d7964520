"""How fast each call of EC2's API may be made.

EC2 counts the calls of an account with one bucket of tokens per kind of call: a call takes a token,
and so many come back each second. Whoever stays below is never throttled by himself; who is
throttled nevertheless shares the account with others, and slows down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_SLOWEST = 1 / 16
_RECOVERY = 1.1
"""A call that succeeds after a throttled one makes the next ones so much faster."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What AWS grants by default, of which others in the account are left a part.

    Attributes:
        burst: How many calls at once.
        per_s: How many a second in the long run.
    """

    burst: float
    per_s: float


_READING = Allowance(50, 10)
_ALLOWANCES: Mapping[str, Allowance] = {
    # For the number of instances rather than of calls, as each call launches one.
    "run_instances": Allowance(5, 2),
    "terminate_instances": Allowance(50, 5),
    "create_tags": Allowance(50, 10),
}


class RateLimiter:
    """One bucket; any thread may call.

    Args:
        allowance: Its size, and how fast it fills.
        clock: In seconds, such as `time.monotonic`.
    """

    def __init__(self, allowance: Allowance, clock: Callable[[], float]) -> None:
        self._allowance = allowance
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = allowance.burst
        self._at = clock()
        self._speed = 1.0

    def take(self) -> float:
        """Take a token, be it a future one; returns how many seconds it is away."""
        with self._lock:
            self._fill()
            self._tokens -= 1
            return max(0.0, -self._tokens / self._rate())

    def throttled(self) -> None:
        """EC2 wants fewer calls: nothing is left of the burst, and it fills half as fast."""
        with self._lock:
            self._fill()
            self._speed = max(_SLOWEST, self._speed / 2)
            self._tokens = min(self._tokens, 0.0)

    def succeeded(self) -> None:
        """EC2 has answered."""
        with self._lock:
            if self._speed < 1:
                self._fill()
                self._speed = min(1.0, self._speed * _RECOVERY)

    def _rate(self) -> float:
        return self._allowance.per_s * self._speed

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._allowance.burst, self._tokens + (now - self._at) * self._rate())
        self._at = now


class Limits:
    """The buckets of all kinds of calls.

    Args:
        clock: See `RateLimiter`.
        share: Of AWS's default allowance.
    """

    def __init__(self, clock: Callable[[], float], share: float = 1.0) -> None:
        self._clock = clock
        self._share = share
        self._lock = threading.Lock()
        self._limiters: dict[str, RateLimiter] = {}

    def of(self, call: str) -> RateLimiter:
        """The bucket of a kind of call, in boto3's words."""
        with self._lock:
            if call not in self._limiters:
                granted = _ALLOWANCES.get(call, _READING)
                allowance = Allowance(
                    max(1.0, granted.burst * self._share), granted.per_s * self._share
                )
                self._limiters[call] = RateLimiter(allowance, self._clock)
            return self._limiters[call]
