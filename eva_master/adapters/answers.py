"""Reads an HTTP answer, of which it takes in so many bytes at most."""

from __future__ import annotations

import asyncio

import h11

MOST_READ = 64 << 10
"""Bytes of an answer that are read."""
_PIECE = 16 << 10


class AnswerTooLarge(Exception):  # the owner of the call says what that means
    """The answer has more bytes than are read."""


class AnswerReader:
    """Reads one answer; raises `AnswerTooLarge`, and what h11 and the connection raise.

    Args:
        connection: State of the exchange, whose request has been sent.
        reader: The bytes that arrive.
    """

    def __init__(self, connection: h11.Connection, reader: asyncio.StreamReader) -> None:
        self._connection, self._reader = connection, reader
        self._left = MOST_READ

    async def response(self) -> h11.Response:
        """Read the status and the headers."""
        while not isinstance(event := await self._next(), h11.Response):
            pass
        return event

    async def body(self) -> bytes:
        """Read the rest, once the headers are read."""
        content = bytearray()
        while not isinstance(event := await self._next(), h11.EndOfMessage | h11.ConnectionClosed):
            if isinstance(event, h11.Data):
                content += event.data
        return bytes(content)

    async def _next(self) -> object:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            if self._left <= 0:
                raise AnswerTooLarge
            data = await self._reader.read(min(self._left, _PIECE))
            self._left -= len(data)
            self._connection.receive_data(data)
        return event
