"""Serves pages on a thread and an event loop of their own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from eva_master.adapters.pages.connections import BoundedListener, end_idle
from eva_master.adapters.pages.guard import Guard
from eva_wire.values.errors import InvalidConfig

SOCKET = "pages.sock"
_BACKLOG = 128
_HEADER_BYTES = 16 * 1024
_IDLE_S = 60
_STOP_S = 1

log = structlog.get_logger(__name__)


class PageSocket:
    """A Unix socket in a directory of the master's own, however long the directory's name is.

    Args:
        directory: Only the master's user may look into it.

    Attributes:
        path: Name of the socket, within this process.
        listener: The socket.
    """

    def __init__(self, directory: Path) -> None:
        # Names of Unix sockets have at most 107 bytes.
        self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = f"/proc/self/fd/{self._directory}/{SOCKET}"
        self.listener = BoundedListener(socket.AF_UNIX, socket.SOCK_STREAM)

    def listen(self) -> None:
        """Make the socket, in place of one that an earlier master has left.

        Raises:
            InvalidConfig: The socket cannot be made.
        """
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=self._directory)
            self.listener.bind(self.path)
            self.listener.listen(_BACKLOG)
        except OSError as error:
            raise InvalidConfig(
                f"the socket {SOCKET} of the pages cannot be made: {error.strerror}",
                hint="see the permissions of the state directory",
            ) from error

    def close(self) -> None:
        """Remove the socket from its directory."""
        self.listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=self._directory)
        os.close(self._directory)


def tcp_listener(setting: str, address: str) -> BoundedListener:
    """A socket that listens on ``HOST:PORT``.

    Args:
        setting: Names the address in messages.
        address: The address; port 0 takes any that is free.

    Raises:
        InvalidConfig: The address cannot be bound.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = BoundedListener(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(_BACKLOG)
    except OSError as error:
        raise InvalidConfig(
            f"{setting}: cannot listen on {address}: {error.strerror}",
            hint="another process may have this port",
        ) from error
    return listener


@dataclass(frozen=True, slots=True)
class Listener:
    """A place where pages are served.

    Attributes:
        socket: Listens.
        is_host: Whether a name in a request is one of this place.
        tls: The certificate that it shows; `None` for no TLS.
    """

    socket: socket.socket
    is_host: Callable[[str], bool]
    tls: ssl.SSLContext | None = None


class PageServer:
    """Serves an application until it is stopped.

    Args:
        make: Makes the application; called in the thread of its event loop.
        listeners: Where it listens.
    """

    def __init__(self, make: Callable[[], ASGIApp], listeners: Sequence[Listener]) -> None:
        self._make = make
        self._listeners = listeners
        self._servers: list[uvicorn.Server] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        """Begin to serve, on a thread."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """End all connections, and the thread; harmless where it has not begun."""
        if not self._thread.is_alive():
            return
        for server in self._servers:
            server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:
            log.exception("the pages broke down")
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        app = self._make()
        self._servers = [_server(app, listener) for listener in self._listeners]
        self._ready.set()
        ending = asyncio.create_task(end_idle(self._connections), name="idle connections")
        try:
            await asyncio.gather(
                *(
                    server.serve([listener.socket])
                    for server, listener in zip(self._servers, self._listeners, strict=True)
                )
            )
        finally:
            ending.cancel()

    def _connections(self) -> Iterable[Any]:
        return chain.from_iterable(server.server_state.connections for server in self._servers)


def _server(app: ASGIApp, listener: Listener) -> uvicorn.Server:
    config = uvicorn.Config(
        Guard(app, listener.is_host),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_STOP_S,
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )
    config.load()
    config.ssl = listener.tls
    return uvicorn.Server(config)
