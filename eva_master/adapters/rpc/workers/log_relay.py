"""Relays logs over a worker's session. Many readers share the stream with the commands."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from eva_master.adapters.rpc._proto import worker_pb2 as pb
from eva_master.adapters.rpc.workers.messages import MOST_COUNT
from eva_master.model.errors import Unreachable
from eva_master.model.ids import RunId

_WAITING_BYTES = 4 * 1024 * 1024
"""Bytes buffered for a slow reader. Beyond that the relay starts over, so that neither memory grows
nor the session stalls."""


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Consecutive bytes of an attempt's log, from `offset` on."""

    offset: int
    data: bytes


class LogRelay:
    """The logs that are followed over one session. Only the asyncio thread uses it.

    Args:
        send: Sends a message to the worker.
    """

    _ids = itertools.count(1)

    def __init__(self, send: Callable[[pb.MasterMessage], None]) -> None:
        self._send = send
        self._follows: dict[str, Follow] = {}

    def follow(self, run: RunId, offset: int, *, once: bool) -> Follow:
        """Ask the worker for a log, and end the request with the context."""
        stream = f"log-{next(self._ids)}"
        follow = self._follows[stream] = Follow(self, stream, offset)
        self._send(
            pb.MasterMessage(
                command_id=f"follow/{stream}",
                follow=pb.FollowLog(stream_id=stream, run_id=run, offset=offset, once=once),
            )
        )
        return follow

    def hear(self, chunk: pb.LogChunk) -> None:
        """Handle a chunk of the worker; chunks without a reader are dropped."""
        if chunk.offset > MOST_COUNT:
            return  # No log is so long.
        if (follow := self._follows.get(chunk.stream_id)) is not None:
            follow.put(chunk)
            if chunk.end:
                del self._follows[chunk.stream_id]

    def unfollow(self, stream: str) -> None:
        """Tell the worker to stop sending a log, unless the log has ended."""
        if self._follows.pop(stream, None) is not None:
            self._send(
                pb.MasterMessage(
                    command_id=f"unfollow/{stream}", unfollow=pb.UnfollowLog(stream_id=stream)
                )
            )

    def end(self) -> None:
        """End all relays, since the session is over."""
        for follow in self._follows.values():
            follow.lose()
        self._follows.clear()


class Follow:
    """The pieces of one log, as an asynchronous iterator.

    Attributes:
        overflowed: Whether it ended because the reader was too slow. Follow again from its end.
    """

    def __init__(self, relay: LogRelay, stream: str, offset: int) -> None:
        self._relay = relay
        self._stream = stream
        self._position = offset
        self._pieces: asyncio.Queue[LogPiece | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._lost = False
        self.overflowed = False

    def put(self, chunk: pb.LogChunk) -> None:
        """Queue the new bytes of a chunk."""
        fresh = chunk.data[max(0, self._position - chunk.offset) :]
        if fresh:
            piece = LogPiece(max(self._position, chunk.offset), fresh)
            self._position = piece.offset + len(fresh)
            self._waiting_bytes += len(fresh)
            self._pieces.put_nowait(piece)
        if chunk.end:
            self._pieces.put_nowait(None)
        elif self._waiting_bytes > _WAITING_BYTES:
            self.overflowed = True
            self._relay.unfollow(self._stream)
            self._pieces.put_nowait(None)

    def lose(self) -> None:
        """End the iterator though the log continues."""
        self._lost = True
        self._pieces.put_nowait(None)

    async def __anext__(self) -> LogPiece:
        """The next piece.

        Raises:
            Unreachable: The session ended before the log did.
        """
        piece = await self._pieces.get()
        if piece is not None:
            self._waiting_bytes -= len(piece.data)
            return piece
        if self._lost:
            raise Unreachable("the worker's session ended")
        raise StopAsyncIteration

    def __aiter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._relay.unfollow(self._stream)
