"""Nonces that are good once, for a minute, and for the process that made them."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable

from eva_wire.rpc.identity import LIFETIME_S
from eva_wire.values.errors import Busy, ChallengeOver

_MOST_USED = 10_000
_AGAIN = "ask the master for another challenge: the command does when it is called again"


class Nonces:
    """Makes nonces and takes each back once. Only the asyncio thread uses it.

    A nonce states when it was made, under a key of this process: none is kept before it is used, so
    that callers who only ask take up no room.

    Args:
        now_s: A monotonic clock in seconds.
        most_used: Used ones that are remembered until their minute is over; more are refused.
    """

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, *, most_used: int = _MOST_USED
    ) -> None:
        self._now_s = now_s
        self._most_used = most_used
        self._key = secrets.token_bytes(32)
        self._used: set[str] = set()
        self._ends: deque[tuple[float, str]] = deque()

    def make(self) -> str:
        """A nonce that was never made before."""
        content = f"{round(self._now_s() * 1000):x}.{secrets.token_hex(16)}"
        return f"{content}.{self._seal(content)}"

    def use(self, nonce: str) -> None:
        """Take a nonce back.

        Raises:
            ChallengeOver: The nonce is too old, was used before, or is not of this process.
            Busy: Too many were used in the last minute.
        """
        content, _, seal = nonce.rpartition(".")
        if not hmac.compare_digest(seal.encode(), self._seal(content).encode()):
            raise ChallengeOver(
                "this master has made no such challenge; it may have been restarted", hint=_AGAIN
            )
        now_s, made_s = self._now_s(), int(content.partition(".")[0], 16) / 1000
        self._forget(now_s)
        if now_s > made_s + LIFETIME_S:
            raise ChallengeOver(f"the challenge is older than {LIFETIME_S} s", hint=_AGAIN)
        if nonce in self._used:
            raise ChallengeOver("the challenge was answered before", hint=_AGAIN)
        if len(self._used) >= self._most_used:
            raise Busy.until("too many callers prove who they are", self._ends[0][0] - now_s)
        self._used.add(nonce)
        # One that is used late is still remembered for as long as it would be good.
        self._ends.append((now_s + LIFETIME_S, nonce))

    def _forget(self, now_s: float) -> None:
        while self._ends and self._ends[0][0] < now_s:
            self._used.discard(self._ends.popleft()[1])

    def _seal(self, content: str) -> str:
        return hmac.digest(self._key, content.encode(), "sha256").hex()
