"""Connections of users to the master's own pages, over their calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eva_master.adapters.rpc.attach.relay import MOST_BYTES
from eva_wire._proto import attach_pb2 as pb
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import Busy, Unreachable

_AGAIN_S = 5.0


class PageDoor:
    """The way to the pages; only the asyncio thread uses it.

    Args:
        path: The Unix socket of the pages.
        most: Connections of one user at the same time.
    """

    def __init__(self, path: str, most: int = 64) -> None:
        self._path = path
        self._most = most
        self._open: Counter[str] = Counter()

    @asynccontextmanager
    async def connected(self, owner: str) -> AsyncIterator[PageEnd]:
        """A connection to the pages.

        Args:
            owner: The user, whose connections are counted.

        Raises:
            Busy: The user has as many as there may be.
            Unreachable: The pages do not answer.
        """
        if self._open[owner] >= self._most:
            raise Busy.until(
                f"{owner} has {self._most:,} connections to the pages open, which is the limit",
                _AGAIN_S,
                hint="close some pages, or have an operator raise `limits.connections_per_forward`",
            )
        self._open[owner] += 1
        try:
            try:
                reader, writer = await asyncio.open_unix_connection(self._path, limit=MOST_BYTES)
            except OSError as error:
                raise Unreachable(
                    "the master's pages do not answer", hint="the master's log says more"
                ) from error
            try:
                yield PageEnd(reader, writer)
            finally:
                writer.transport.abort()
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]


class PageEnd:
    """The pages' end of a connection, in frames.

    Args:
        reader: The pages' answers.
        writer: Takes requests.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._opened = False

    async def read(self) -> object:
        """The next frame; the last one says that the connection has ended."""
        if not self._opened:
            self._opened = True
            return pb.Output(opened=True)
        data = b""
        with contextlib.suppress(OSError):
            data = await self._reader.read(MOST_BYTES)
        return pb.Output(data=data) if data else pb.Output(exit=pb.Exit())

    async def write(self, frame: pb.Input) -> None:
        """Pass a browser's bytes on; that the pages have closed meanwhile is for `read` to tell.

        Raises:
            BadRequest: The frame is of a command.
        """
        if frame.HasField("resize"):
            raise BadRequest("pages have no size")
        with contextlib.suppress(OSError):
            if frame.HasField("end"):
                self._writer.write_eof()
            else:
                self._writer.write(frame.data)
                await self._writer.drain()
