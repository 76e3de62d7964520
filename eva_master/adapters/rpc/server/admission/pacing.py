"""Limits each user's calls per second, simultaneous calls, open streams and what these send.

A caller slightly above the rate waits in line, with the request still unread; a caller far above it
is refused, and told when to try again. Only the asyncio thread uses this module.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from eva_wire.rpc.methods import CallLine
from eva_wire.values.errors import Busy

_BURST_S = 5.0
"""Calls of so many seconds may come at once."""
_LONGEST_WAIT_S = 2.0
"""Calls that would wait in line for longer are refused."""
AT_ONCE: Mapping[CallLine, int] = {
    CallLine.CALLS: 8,
    CallLine.FILES: 4,
    CallLine.UPLOADS: 8,
    CallLine.DOWNLOADS: 8,
    CallLine.TOKENS: 4,
}
"""Calls of one user that are worked on; each has its request in memory."""
_LINE = 200
"""Calls of one user that wait in line."""
_STREAMS_IN_ALL = 10
"""Streams of all users together, as a multiple of what one user may have."""
_MESSAGES_PER_SECOND = 100
"""Messages of all watches of one user in the long run."""
_MESSAGES_PER_SECOND_IN_ALL = 1_000
"""A message takes about a tenth of a millisecond, during which no call is answered."""
_AT_ONCE_S = 0.02
"""Messages of so many seconds may come at once; calls are answered before the next ones."""
_TEXT_PER_SECOND = 100_000
"""Characters of one user's submissions in the long run: the journal keeps them for ever."""
_TEXT_BURST_S = 300.0


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The limits of one user.

    Attributes:
        calls_per_second: The long-term rate of calls.
        streams: Watches and logs that are followed at the same time.
        watches_of_all: The part of them that may be watches of all jobs.
    """

    calls_per_second: int = 100
    streams: int = 1_000
    watches_of_all: int = 20


class CallRate:
    """A rate of calls or messages, with bursts.

    Args:
        per_second: The long-term rate.
        now: A monotonic clock in seconds.
        burst_s: Calls of so many seconds may come at once.
    """

    def __init__(
        self, per_second: float, now: Callable[[], float], burst_s: float = _BURST_S
    ) -> None:
        self._interval = 1 / per_second
        self._now = now
        self._burst_s = burst_s
        self._due = 0.0
        """When the next call would come if they came evenly."""

    def wait_s(self) -> float:
        """How long the next call has to wait."""
        return max(0.0, self._due - self._now() - self._burst_s)

    def take(self, count: int = 1) -> None:
        """Count a call, or so many of them, that begin now."""
        self._due = max(self._due, self._now()) + count * self._interval

    async def turn(self) -> None:
        """Wait for the turn of the next call and count it, in the order of asking."""
        wait_s = self.wait_s()
        self.take()
        if wait_s > 0:
            await asyncio.sleep(wait_s)


class _User:
    """The calls and streams that a user has open."""

    def __init__(self, share: UserLimits, now: Callable[[], float]) -> None:
        self.pace = CallRate(share.calls_per_second, now)
        self.slots = {line: asyncio.Semaphore(count) for line, count in AT_ONCE.items()}
        self.messages = CallRate(_MESSAGES_PER_SECOND, now)
        self.text = CallRate(_TEXT_PER_SECOND, now, _TEXT_BURST_S)
        self.in_line = 0
        self.streams = 0
        self.watches_of_all = 0


class Pacing:
    """Holds every user to the same limits.

    Args:
        share: The limits of each user.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self, share: UserLimits | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._share = share or UserLimits()
        self._now = now
        self._users: dict[str, _User] = {}
        self._streams = 0
        self._messages = CallRate(_MESSAGES_PER_SECOND_IN_ALL, now, _AT_ONCE_S)

    async def begin(self, owner: str, line: CallLine) -> Callable[[], None]:
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
        if line is not CallLine.UPLOADS:
            await self._in_turn(user)
        if line is CallLine.STREAMS:
            return self._stream(owner, user)
        return await self._slot(user, user.slots[line])

    @contextmanager
    def all_jobs(self, owner: str) -> Iterator[None]:
        """Count a stream of all jobs, or of very many, beside its being a stream.

        Raises:
            Busy: The user has too many of them.
        """
        user, most = self._user(owner), self._share.watches_of_all
        if user.watches_of_all >= most:
            raise Busy.until(
                f"{owner} watches all jobs {most:,} times already, which is the limit",
                _LONGEST_WAIT_S,
                hint="watch the jobs that you want to know of by name, or have an operator raise "
                "`limits.watches_of_all`",
            )
        user.watches_of_all += 1
        try:
            yield
        finally:
            user.watches_of_all -= 1

    def submission(self, owner: str, characters: int) -> None:
        """Count what a submission adds to the journal.

        Raises:
            Busy: The user's submissions were too large together.
        """
        pace = self._user(owner).text
        if (wait_s := pace.wait_s()) > 0:
            raise Busy.until(
                f"{owner} submits more than {_TEXT_PER_SECOND:,} characters a second",
                wait_s,
                hint="put data into files of the working directory, or the same command into the"
                " tasks of one array",
            )
        pace.take(characters)

    async def message(self, owner: str) -> None:
        """Wait until a user's next message about a watched job may be sent.

        Messages of a user come in the order of asking, and so do those of all users whose turn it
        is.
        """
        await self._user(owner).messages.turn()
        await self._messages.turn()

    def streams_of(self, owner: str) -> int:
        """The open streams of a user."""
        return self._user(owner).streams

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
