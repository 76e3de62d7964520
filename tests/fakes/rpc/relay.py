"""A TCP relay between an agent and its master or its store, which can be cut in several ways."""

from __future__ import annotations

import asyncio
import contextlib


class Relay:
    """Passes bytes on, both ways.

    Args:
        port: Where to, on this machine.

    Attributes:
        port: Where it listens.
        left: How many bytes it passes on, in both directions together, before it cuts itself;
            `None` for any number.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = True
        self._callers: list[asyncio.StreamWriter] = []
        self._targets: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.left: int | None = None

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break all connections, and turn callers away until `mend`."""
        self._open = False
        self._hang_up(self._callers)
        self._hang_up(self._targets)

    def mend(self) -> None:
        """Let callers through again, for as long as they like."""
        self._open, self.left = True, None

    def hang_up_on_callers(self) -> None:
        """Break the callers' connections without a word to those whom they called."""
        self._hang_up(self._callers)

    def _hang_up(self, writers: list[asyncio.StreamWriter]) -> None:
        while writers:
            writers.pop().transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            writer.transport.abort()
            return
        there, target = await asyncio.open_connection("127.0.0.1", self._target)
        self._callers.append(writer)
        self._targets.append(target)
        for source, sink in ((reader, target), (there, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                if self.left is not None:
                    self.left -= len(data)
                    if self.left < 0:
                        self.cut()
                        return
                sink.write(data)
                await sink.drain()
