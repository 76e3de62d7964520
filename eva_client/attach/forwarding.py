"""Forwards connections from a port of this machine to a port of a task, or to the pages."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from eva_wire._proto import attach_pb2 as pb
from eva_wire.values.errors import (
    CannotListen,
    EvaError,
    NotAuthenticated,
    NotAuthorised,
    NotFound,
    NotRunning,
    of_file,
)

if TYPE_CHECKING:
    from eva_client.rpc.master import Client

FRAME_BYTES = 64 * 1024
_HERE = "127.0.0.1"
_BACKLOG = 64
_MOST = 500
"""Connections at a time, each with a thread; further ones wait."""
_FOR_GOOD = (NotAuthenticated, NotAuthorised, NotFound, NotRunning)
"""Errors that further connections would meet as well."""


class Forwarding:
    """A local port whose connections go to a task, or to the pages of the master.

    Args:
        client: The connection to the master.
        opening: First frame of each connection.
        tell: Called with errors of single connections, in any thread.
    """

    def __init__(self, client: Client, opening: pb.Input, tell: Callable[[EvaError], None]) -> None:
        self._client = client
        self._opening = opening
        self._tell = tell
        self._ended: EvaError | None = None
        self._room = threading.BoundedSemaphore(_MOST)
        self._listener: socket.socket | None = None

    def check(self) -> None:
        """See that a process of the task listens on the port; raises `EvaError` if none does."""
        look = pb.Input()
        look.CopyFrom(self._opening)
        look.open.kind.forward.look = True
        for _ in self._client.attach(iter([look])):
            pass

    def listen(self, port: int, hint: str) -> int:
        """Listen on a port of this machine, 0 for any; returns which.

        Args:
            port: The port.
            hint: Advice for a port that another program has.

        Raises:
            CannotListen: Another program has the port.
        """
        try:
            self._listener = socket.create_server((_HERE, port), backlog=_BACKLOG)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise CannotListen(
                    f"port {port} of this machine cannot be had: {os.strerror(error.errno)}",
                    hint=hint,
                ) from error
            raise of_file(error) from error
        return int(self._listener.getsockname()[1])

    def run(self) -> None:
        """Serve connections until the process is interrupted.

        Raises:
            EvaError: No connection can be made any more.
        """
        assert self._listener is not None
        with self._listener:
            while True:
                self._room.acquire()
                try:
                    connection, _ = self._listener.accept()
                except OSError:
                    if self._ended is not None:
                        raise self._ended from None
                    raise
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                try:
                    self._pass_on(connection)
                finally:
                    # The thread that sends may wait for more.
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
        except EvaError as error:
            if isinstance(error, _FOR_GOOD):
                self._end(error)
            else:
                self._tell(error)
        finally:
            self._room.release()

    def _end(self, error: EvaError) -> None:
        self._ended = error
        assert self._listener is not None
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, connection: socket.socket) -> None:
        for frame in self._client.attach(self._inputs(connection)):
            with contextlib.suppress(OSError):  # The local program has gone; so does the call.
                if frame.HasField("data"):
                    connection.sendall(frame.data)
                    continue
                if frame.HasField("end"):
                    connection.shutdown(socket.SHUT_WR)
                    continue
                if frame.HasField("opened"):
                    continue
            return

    def _inputs(self, connection: socket.socket) -> Iterator[pb.Input]:
        yield self._opening
        with contextlib.suppress(OSError):
            while data := connection.recv(FRAME_BYTES):
                yield pb.Input(data=data)
        yield pb.Input(end=True)
