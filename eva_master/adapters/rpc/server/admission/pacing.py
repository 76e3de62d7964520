"""Limits each user's calls per second, simultaneous calls and open streams.

Whoever is a little too fast waits in line, with the request still unread; whoever is much too fast
is refused, and told when to try again. Only the asyncio thread uses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from eva_master.adapters.rpc.methods import Line
from eva_master.model.errors import Busy

_BURST_S = 5.0
"""Calls of so many seconds may come at once."""
_LONGEST_WAIT_S = 2.0
"""Whoever would have to wait in line for longer is refused."""
AT_ONCE: Mapping[Line, int] = {Line.CALLS: 8, Line.FILES: 4, Line.UPLOADS: 8, Line.TOKENS: 4}
"""Calls of one user that are worked on; each has its request in memory."""
_LINE = 200
"""Calls of one user that wait in line."""
_STREAMS_IN_ALL = 10
"""Streams of all users together, as a multiple of what one user may have."""


@dataclass(frozen=True, slots=True)
class Share:
    """The limits of one user.

    Attributes:
        calls_per_second: The long-term rate of calls.
        streams: Watches and logs that are followed at the same time.
    """

    calls_per_second: int = 100
    streams: int = 1_000


class Pace:
    """A rate of calls, with bursts.

    Args:
        per_second: The long-term rate.
        now: A monotonic clock in seconds.
    """

    def __init__(self, per_second: float, now: Callable[[], float]) -> None:
        self._interval = 1 / per_second
        self._now = now
        self._due = 0.0
        """When the next call would come if they came evenly."""

    def wait_s(self) -> float:
        """How long the next call has to wait."""
        return max(0.0, self._due - self._now() - _BURST_S)

    def take(self) -> None:
        """Count a call that begins now."""
        self._due = max(self._due, self._now()) + self._interval


class _User:
    """The calls and streams that a user has open."""

    def __init__(self, share: Share, now: Callable[[], float]) -> None:
        self.pace = Pace(share.calls_per_second, now)
        self.slots = {line: asyncio.Semaphore(count) for line, count in AT_ONCE.items()}
        self.in_line = 0
        self.streams = 0


class Pacing:
    """Holds every user to the same limits.

    Args:
        share: The limits of each user.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self, share: Share | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._share = share or Share()
        self._now = now
        self._users: dict[str, _User] = {}
        self._streams = 0

    async def begin(self, owner: str, line: Line) -> Callable[[], None]:
        """Wait in line, and begin a call.

        Args:
            owner: The user who calls.
            line: Which other calls of theirs it waits for. Of uploads there are many in a row, so
                only those at the same time are counted.

        Returns:
            A function that ends the call.

        Raises:
            Busy: The line is too long, or there are too many streams.
        """
        user = self._user(owner)
        if line is not Line.UPLOADS:
            await self._in_turn(user)
        if line is Line.STREAMS:
            return self._stream(owner, user)
        return await self._slot(user, user.slots[line])

    def _stream(self, owner: str, user: _User) -> Callable[[], None]:
        most = self._share.streams
        if user.streams >= most:
            raise Busy.until(
                f"{owner} has {most:,} open streams, which is the limit",
                _LONGEST_WAIT_S,
                hint="end watches and followed logs that nobody reads, or have an operator raise "
                "`limits.streams`",
            )
        if self._streams >= _STREAMS_IN_ALL * most:
            raise Busy.until("the master has too many open streams", _LONGEST_WAIT_S)
        user.streams += 1
        self._streams += 1

        def end() -> None:
            user.streams -= 1
            self._streams -= 1

        return end

    def _user(self, owner: str) -> _User:
        # There are no more of them than tokens.
        user = self._users.get(owner)
        if user is None:
            user = self._users[owner] = _User(self._share, self._now)
        return user

    async def _in_turn(self, user: _User) -> None:
        wait_s = user.pace.wait_s()
        if wait_s > _LONGEST_WAIT_S or user.in_line >= _LINE:
            raise Busy.until(
                f"more than {self._share.calls_per_second:,} calls a second are too many",
                wait_s,
                hint="ask less often; `eva submit --wait` and `eva status --watch` are told of "
                "changes without asking",
            )
        user.pace.take()
        if wait_s > 0:
            async with _in_line(user):
                await asyncio.sleep(wait_s)

    async def _slot(self, user: _User, slots: asyncio.Semaphore) -> Callable[[], None]:
        if slots.locked() and user.in_line >= _LINE:
            raise Busy.until(
                f"more than {_LINE} calls at once are too many", 1.0, hint="make fewer at a time"
            )
        async with _in_line(user):
            await slots.acquire()
        return slots.release


@asynccontextmanager
async def _in_line(user: _User) -> AsyncIterator[None]:
    user.in_line += 1
    try:
        yield
    finally:
        user.in_line -= 1
