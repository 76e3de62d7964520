"""A stream of events to one browser: changes of the page that is open in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eva_master.adapters.pages.live import Follower, Live, NewestRendering
from eva_master.adapters.pages.sessions import BrowserSession
from eva_wire.values.errors import NotAuthenticated

_CHECK_S = 5.0
"""From one look at the session to the next."""
_END = b"event: end\ndata: \n\n"


class EventStream(Response):
    """The answer to a request for changes: as server-sent events, until the browser goes.

    Args:
        live: The pages.
        entry: The page that is open.
        cursor: The edition that the browser has.
        session: The session of the browser.
        check: Raises once the session has ended.
        end: Called when the stream is over.
    """

    def __init__(
        self,
        live: Live,
        entry: NewestRendering,
        *,
        cursor: str,
        session: BrowserSession,
        check: Callable[[BrowserSession], None],
        end: Callable[[], None],
    ) -> None:
        super().__init__()
        self._live = live
        self._entry = entry
        self._cursor = cursor
        self._follower = Follower(session)
        self._check = check
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send events until the browser goes, does not read, or its session ends."""
        head = [(b"content-type", b"text/event-stream; charset=utf-8")]
        going = asyncio.create_task(_gone(receive))
        sending = asyncio.create_task(self._send(send, head))
        try:
            await asyncio.wait((going, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._end()
            for task in (going, sending):
                task.cancel()
            await asyncio.wait((going, sending))
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send, head: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await self._write(send, b": hello\n\n")
        with self._live.follow(self._entry, self._follower):
            while True:
                await self._tell(send)
                if self._entry.error is not None or not self._goes_on():
                    await self._write(send, _END)
                    return
                try:
                    async with asyncio.timeout(_CHECK_S):
                        await self._follower.bell.wait()
                except TimeoutError:
                    await self._write(send, b":\n\n")
                self._follower.bell.clear()

    def _goes_on(self) -> bool:
        try:
            self._check(self._follower.session)
        except NotAuthenticated:
            return False
        return True

    async def _tell(self, send: Send) -> None:
        message = self._live.message(self._entry, self._cursor)
        if message is not None:
            self._cursor, data = message
            await self._write(send, b"data: " + data + b"\n\n")

    @staticmethod
    async def _write(send: Send, data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
