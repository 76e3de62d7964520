"""Relays logs over a worker's session. Many readers share the stream with the commands.

Readers of one log share what the worker sends: it is asked for once, and each piece is in memory
once, however many read it and however slowly they do.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from eva_master.adapters.loop.subscription import Subscription
from eva_master.adapters.rpc.workers.messages import MOST_COUNT
from eva_wire._proto import worker_pb2 as pb
from eva_wire.values.errors import Unreachable
from eva_wire.values.ids import RunId

_WAITING_BYTES = 1024 * 1024
"""Bytes of a log that wait for slow readers. Readers further behind start over where they are, so
that neither memory grows nor the session stalls.
"""
_WAITING_BYTES_OF_MANY = 64 * 1024
"""Bytes that wait while many different logs are read."""
_WAITING_IN_ALL = 64 * 1024 * 1024
_offset = attrgetter("offset")


@dataclass(frozen=True, slots=True)
class RelayedPiece:
    """Consecutive bytes of an attempt's log, from `offset` on."""

    offset: int
    data: bytes


class WaitingBytes:
    """Counts the bytes of all logs of all sessions that wait for their readers."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def most_per_log(self) -> int:
        """How many of them one log may have at the moment."""
        return _WAITING_BYTES if self.count <= _WAITING_IN_ALL else _WAITING_BYTES_OF_MANY


class LogRelay:
    """The logs that are followed over one session. Only the asyncio thread uses it.

    Args:
        send: Sends a message to the worker.
        waiting: Shared by all sessions.
    """

    _ids = itertools.count(1)

    def __init__(
        self, send: Callable[[pb.MasterMessage], None], waiting: WaitingBytes | None = None
    ) -> None:
        self._send = send
        self._waiting = waiting or WaitingBytes()
        self._logs: dict[str, _Log] = {}

    def follow(self, run: RunId, offset: int, *, once: bool) -> Follow:
        """Read a log, and end the request with the context.

        Args:
            run: Task run whose log is followed.
            offset: First byte in the attempt's log.
            once: Whether to end with the present log instead of with the attempt.
        """
        log = None if once else self._shared(run, offset)
        if log is None:
            stream = f"log-{next(self._ids)}"
            log = self._logs[stream] = _Log(stream, run, offset, self._waiting, shared=not once)
            self._send(
                pb.MasterMessage(
                    command_id=f"follow/{stream}",
                    follow=pb.FollowLog(stream_id=stream, run_id=run, offset=offset, once=once),
                )
            )
        return Follow(self, log, offset)

    def _shared(self, run: RunId, offset: int) -> _Log | None:
        """A log that is followed already, and has what comes after a position."""
        return next(
            (
                log
                for log in self._logs.values()
                if log.shared and log.run == run and log.has(offset)
            ),
            None,
        )

    def hear(self, chunk: pb.LogChunk) -> None:
        """Handle a chunk of the worker; chunks without a reader are dropped."""
        if chunk.offset > MOST_COUNT:
            return  # No log is so long.
        log = self._logs.get(chunk.stream_id)
        if log is None:
            return
        log.put(chunk)
        if chunk.end:
            del self._logs[chunk.stream_id]
        elif log.is_full():
            self._stop(log)

    def leave(self, reader: Follow, log: _Log) -> None:
        """A reader has gone; the worker stops sending a log that nobody reads."""
        log.readers.pop(reader, None)
        if not log.readers:
            self._stop(log)
            log.clear()

    def _stop(self, log: _Log) -> None:
        log.stopped = True
        if self._logs.pop(log.stream, None) is not None:
            self._send(
                pb.MasterMessage(
                    command_id=f"unfollow/{log.stream}",
                    unfollow=pb.UnfollowLog(stream_id=log.stream),
                )
            )
        log.wake()

    def end(self) -> None:
        """End all relays, since the session is over."""
        for log in self._logs.values():
            log.lost = True
            log.wake()
        self._logs.clear()


class _Log:
    """The part of a log that the worker has sent and readers may still want.

    Attributes:
        readers: Readers of the log.
        shared: Whether more may join.
        stopped: Nothing more comes, though the log goes on; readers ask again when they have all.
        ended: Nothing more comes, since the log is over.
        lost: Nothing more comes, since the session is over.
    """

    def __init__(
        self, stream: str, run: RunId, offset: int, waiting: WaitingBytes, *, shared: bool
    ) -> None:
        self.stream = stream
        self.run = run
        self.shared = shared
        self.readers: dict[Follow, None] = {}
        self.stopped = self.ended = self.lost = False
        self._waiting = waiting
        self._pieces: list[RelayedPiece] = []
        self._start = self._position = offset
        self._bytes = 0
        self._news = asyncio.Event()

    def has(self, offset: int) -> bool:
        """Whether a reader at a position can go on with this."""
        return not (self.stopped or self.lost) and self._start <= offset <= self._position

    def put(self, chunk: pb.LogChunk) -> None:
        """Keep the new bytes of a chunk, and the oldest ones no longer if there are too many."""
        fresh = chunk.data[max(0, self._position - chunk.offset) :]
        if fresh:
            piece = RelayedPiece(max(self._position, chunk.offset), fresh)
            self._position = piece.offset + len(fresh)
            self._pieces.append(piece)
            self._count(len(fresh))
        self.ended = self.ended or chunk.end
        most = self._waiting.most_per_log
        if self._bytes > most // 2:
            self._forget_read()
        # Slow readers do not hold up the others.
        if self._bytes > most and any(
            reader.is_at(self._position - len(fresh)) for reader in self.readers
        ):
            while len(self._pieces) > 1 and self._bytes > most:
                self._forget_first()
        self.wake()

    def is_full(self) -> bool:
        """Whether more waits than may, and nobody keeps up."""
        return self._bytes > self._waiting.most_per_log

    def piece_at(self, offset: int) -> RelayedPiece | None:
        """The bytes from a position on, or those after a gap; `None` if there are none yet."""
        if not self._pieces or offset >= self._position:
            return None
        at = max(0, bisect_right(self._pieces, offset, key=_offset) - 1)
        piece = self._pieces[at]
        if offset >= piece.offset + len(piece.data):
            piece = self._pieces[at + 1]  # the worker has let go of what is between
        if offset <= piece.offset:
            return piece
        return RelayedPiece(offset, piece.data[offset - piece.offset :])

    def is_past(self, offset: int) -> bool:
        """Whether the bytes at a position were here, and are no longer."""
        return offset < self._start

    def _forget_read(self) -> None:
        """Let go of what every reader has."""
        last = min((reader.position for reader in self.readers), default=self._position)
        while self._pieces and self._pieces[0].offset + len(self._pieces[0].data) <= last:
            self._forget_first()

    def _forget_first(self) -> None:
        piece = self._pieces.pop(0)
        self._start = piece.offset + len(piece.data)
        self._count(-len(piece.data))

    def clear(self) -> None:
        """Let go of everything."""
        self._pieces.clear()
        self._count(-self._bytes)

    def wake(self) -> None:
        """Have all readers look."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Wait until something has come or ended."""
        await self._news.wait()

    def _count(self, more: int) -> None:
        self._bytes += more
        self._waiting.count += more


class Follow(Subscription[RelayedPiece]):
    """The pieces of one log, for one reader, as an asynchronous iterator.

    Attributes:
        position: Of the next byte in the attempt's log.
        overflowed: Whether it ended because the reader was too slow. Follow again from its end.
    """

    def __init__(self, relay: LogRelay, log: _Log, offset: int) -> None:
        super().__init__(lambda: relay.leave(self, log))
        self._log = log
        self.position = offset
        self.overflowed = False
        log.readers[self] = None

    def is_at(self, offset: int) -> bool:
        """Whether the reader has all that is before a position."""
        return self.position >= offset

    async def __anext__(self) -> RelayedPiece:
        """The next piece.

        Raises:
            Unreachable: The session ended before the log did.
        """
        log = self._log
        while True:
            if log.is_past(self.position):
                self.overflowed = True
                raise StopAsyncIteration
            if (piece := log.piece_at(self.position)) is not None:
                self.position = piece.offset + len(piece.data)
                return piece
            if log.ended:
                raise StopAsyncIteration
            if log.lost:
                raise Unreachable("the worker's session ended")
            if log.stopped:
                self.overflowed = True
                raise StopAsyncIteration
            await log.news()
