"""Limits how fast each call of EC2's API is made.

EC2 limits the calls of an account with one token bucket per API call. A client that stays below the
limits is only throttled if others use the account too; then it slows down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eva_master.adapters.token_bucket import TokenBucket

_LEAST_RATE_FACTOR = 1 / 16
_RECOVERY = 1.1
"""Factor by which each successful call after throttling raises the rate again."""


@dataclass(frozen=True, slots=True)
class CallLimit:
    """AWS's default limit for a call. A part of it is left to others in the account.

    Attributes:
        burst: Number of calls at once.
        per_s: Calls per second in the long run.
    """

    burst: float
    per_s: float


_READING = CallLimit(50, 10)
_ALLOWANCES: Mapping[str, CallLimit] = {
    # This limit counts instances rather than calls; each call launches one.
    "run_instances": CallLimit(5, 2),
    "terminate_instances": CallLimit(50, 5),
    "create_tags": CallLimit(50, 10),
}


class RateLimiter:
    """One token bucket. Any thread may call.

    Args:
        allowance: Its size and its rate.
        clock: In seconds, such as `time.monotonic`.
    """

    def __init__(self, allowance: CallLimit, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._bucket = TokenBucket(allowance.burst, allowance.per_s, clock)

    def take(self) -> float:
        """Take a token, possibly a future one; returns the seconds to wait for it."""
        with self._lock:
            return self._bucket.take()

    def throttled(self) -> None:
        """Note that EC2 throttled a call: empty the bucket and halve its rate."""
        with self._lock:
            self._bucket.pour_out()
            self._bucket.speed = max(_LEAST_RATE_FACTOR, self._bucket.speed / 2)

    def succeeded(self) -> None:
        """Note that EC2 answered a call, which restores the rate."""
        with self._lock:
            if self._bucket.speed < 1:
                self._bucket.speed = min(1.0, self._bucket.speed * _RECOVERY)


def limiter_of(call: str, clock: Callable[[], float], share: float = 1.0) -> RateLimiter:
    """The token bucket of an API call.

    Args:
        call: Its name in boto3.
        clock: See `RateLimiter`.
        share: Share of AWS's default limit to use.
    """
    granted = _ALLOWANCES.get(call, _READING)
    return RateLimiter(CallLimit(max(1.0, granted.burst * share), granted.per_s * share), clock)
