"""Stands at a task's socket and lets in what the task's own processes say.

gRPC does not tell which process has called. So this module accepts the connections, asks the kernel
about the other end, and passes bytes on to the gRPC server, which nothing else reaches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import structlog

from eva_worker.files.beneath import Directory, remove_tree
from eva_worker.process.peers import Peer

_MOST_CONNECTIONS = 256
"""Of one task. Each has three descriptors; all that an agent may open is shared by its tasks."""
_BACKLOG = 256
_CHUNK = 64 << 10
_PAUSE_S = 0.002
"""Pause after a stranger, which bounds what strangers cost."""
_NO_ROOM_S = 0.1
_WITHIN_S = 5.0
"""Longest wait for the runtime to say whose process a peer is."""

_log = structlog.get_logger()

Owns = Callable[[int], Awaitable[bool]]
"""Says whether a process, by its number, belongs to the task."""


class Inlet:
    """A place of a gRPC server that only this process can connect to.

    Args:
        server: A `grpc.aio.Server` that has not been started.
        directory: A directory in which the place is for a moment.
    """

    def __init__(self, server: Any, directory: Directory) -> None:
        self._server = server
        self._directory = directory
        self._fd = -1

    @property
    def path(self) -> str:
        """The path that this process connects to."""
        return f"/proc/self/fd/{self._fd}"

    async def open(self) -> None:
        """Start the server; raises `OSError` or `RuntimeError` if it cannot listen."""
        # The socket's name in /proc/net/unix is that below the descriptor, which says nothing.
        name = f".{secrets.token_hex(16)}"
        with self._directory.directory(name, make=True) as place:
            try:
                bound = str(place.place("in"))
                self._server.add_insecure_port(f"unix:{bound}")
                self._fd = os.open("in", os.O_PATH | os.O_CLOEXEC, dir_fd=place.fd)
                os.unlink("in", dir_fd=place.fd)
            finally:
                remove_tree(self._directory.place(name))
            _drop_those_before(bound)
            await self._server.start()

    async def close(self) -> None:
        """Stop the server and give its place up."""
        await self._server.stop(None)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Gate:
    """Accepts the connections to a task's socket.

    Args:
        owns: Says whose process a peer is.
        inlet: Gives the server for peers of the task that are proven (true), and for those whose
            process is not seen from here (false), which must show the task's secret.
    """

    def __init__(self, owns: Owns, inlet: Callable[[bool], Awaitable[Inlet]]) -> None:
        self._owns = owns
        self._inlet = inlet
        self._accepting: asyncio.Task[None] | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._warned = False

    def open(self, directory: Directory, name: str) -> None:
        """Listen in a directory; raises `OSError` if that does not work.

        Args:
            directory: Where, held open by the caller until the gate is closed.
            name: The socket's name there, which is free.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            listener.bind(str(directory.place(name)))
            # The directory's mode keeps other users out; the task may run as another user.
            directory.chmod_socket(name, 0o666)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._accepting = asyncio.create_task(self._accept(listener), name="gate")

    async def close(self) -> None:
        """Stop listening and end all connections."""
        running = [*self._relays, *filter(None, [self._accepting])]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._listener:
            self._listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # This process has no descriptors left.
                _log.warning("a connection of a task cannot be accepted", error=str(error))
                await asyncio.sleep(_NO_ROOM_S)
                continue
            try:
                inlet = await self._judged(connection)
            except BaseException:
                connection.close()
                raise
            if inlet is None or len(self._relays) >= _MOST_CONNECTIONS:
                connection.close()
                await asyncio.sleep(_PAUSE_S)
                continue
            relay = asyncio.create_task(_relay(connection, inlet.path))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)

    async def _judged(self, connection: socket.socket) -> Inlet | None:
        """Where a connection is passed on to; `None` for nowhere."""
        try:
            with Peer(connection) as peer:
                if not peer.pid:
                    return await self._inlet(False)
                async with asyncio.timeout(_WITHIN_S):
                    own = await self._owns(peer.pid)
                # Asked last: until then its number cannot have passed to another process.
                return await self._inlet(True) if own and peer.lives() else None
        except Exception as error:
            # A program reports again; what cannot be judged is not let in.
            if not self._warned:
                _log.warning("a connection of a task cannot be judged", error=repr(error))
            self._warned = True
            return None


async def _relay(connection: socket.socket, path: str) -> None:
    """Pass bytes on, in both directions, until one end closes."""
    writers: list[asyncio.StreamWriter] = []
    try:
        theirs, answer = await asyncio.open_unix_connection(sock=connection, limit=_CHUNK)
        writers.append(answer)
        ours, onward = await asyncio.open_unix_connection(path, limit=_CHUNK)
        writers.append(onward)
        pumps = [asyncio.create_task(_pump(*way)) for way in ((theirs, onward), (ours, answer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
    except OSError as error:
        _log.debug("a connection of a task broke", error=str(error))
    finally:
        connection.close()
        for writer in writers:
            writer.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        target.write(data)
        await target.drain()


def _drop_those_before(bound: str) -> None:
    """Close connections that were made while the name of a listening socket could be seen."""
    for listener in _listening(bound):
        with listener:
            listener.setblocking(False)
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()


def _listening(bound: str) -> Iterator[socket.socket]:
    """Copies of this process's sockets that listen at a path."""
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if not stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                continue
            copy = os.dup(int(number))
        except OSError:
            continue
        try:
            listener = socket.socket(fileno=copy)
        except OSError:  # A descriptor of a socket's name, which is no connection.
            os.close(copy)
            continue
        listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if listener.family == socket.AF_UNIX and listens and listener.getsockname() == bound:
            yield listener
        else:
            listener.close()
