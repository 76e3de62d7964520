"""A server in the place of STS that answers what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.fakes.patience import DEADLINE_S


@dataclass
class ScriptedSts:
    """Where it is, and the requests that came.

    Attributes:
        url: Its URL.
        heads: Request lines and headers.
    """

    url: str
    heads: list[str] = field(default_factory=list)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, head: str) -> None:
        """Note a request."""
        async with self._news:
            self.heads.append(head)
            self._news.notify_all()

    async def asked(self, times: int) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(DEADLINE_S), self._news:
            await self._news.wait_for(lambda: len(self.heads) >= times)


def document(arns: str) -> bytes:
    """An answer of STS with these elements."""
    return (
        "<GetCallerIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'>"
        f"<GetCallerIdentityResult>{arns}</GetCallerIdentityResult></GetCallerIdentityResponse>"
    ).encode()


def http(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    """An HTTP answer."""
    return f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def scripted_sts(answer: bytes, *, silent: bool = False) -> AsyncIterator[ScriptedSts]:
    """Answer each request so, and close the connection unless it is silent."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await service.take((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(answer)
        if silent:
            await ended.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    service = ScriptedSts(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield service
    finally:
        ended.set()
        server.close()
        await server.wait_closed()
