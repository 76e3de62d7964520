"""An HTTPS server on a thread, which picks up a renewed certificate."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

from eva_master.adapters.pki.server import Credentials, ServerIdentity
from eva_wire.values.errors import InvalidConfig

_SILENT_S = 5.0
"""Seconds of silence after which a client is disconnected."""
_WITHIN_S = 15.0
"""Seconds after which a client is disconnected, whatever it has sent and read by then."""
_CONNECTIONS = 16
_CONNECTIONS_PER_HOST = 8
"""More are closed at once: a thread serves each of them."""


class HttpsServer:
    """Serves an application until it is stopped.

    Args:
        address: Of an interface, or the name of one.
        port: 0 takes any that is free.
        application: Called in a thread per connection.
        identity: Identity shown to clients.

    Attributes:
        port: Where it listens.

    Raises:
        InvalidConfig: The address cannot be bound.
    """

    def __init__(
        self, address: str, port: int, application: WSGIApplication, identity: ServerIdentity
    ) -> None:
        try:
            self._server = _Server(address.strip("[]"), port, identity)
        except OSError as error:
            raise InvalidConfig(
                f"cannot listen on {address}:{port}: {error.strerror}",
                hint="another process may have this port",
            ) from error
        self._server.set_app(application)
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="https", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Quiet(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes are not worth a line."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, address: str, port: int, identity: ServerIdentity) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[float, str]] = {}
        """Connections that are being served: when they end at the latest, and whose they are."""
        self._identity = identity
        self._shown: Credentials | None = None
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.address_family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((address, port), _Quiet)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection with the present certificate."""
        connection, peer = super().get_request()
        current = self._identity.current()
        if current is not self._shown:
            self._context.load_cert_chain(current.file)
            self._shown = current
        # The connection's own thread does the handshake, since the peer may be slow.
        return self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        ), peer

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, unless there are too many."""
        with self._lock:
            same = sum(host == client_address[0] for _, host in self._open.values())
            refused = len(self._open) >= _CONNECTIONS or same >= _CONNECTIONS_PER_HOST
            if not refused:
                self._open[request] = time.monotonic() + _WITHIN_S, client_address[0]
        if refused:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection from its handshake to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(request, None)

    def service_actions(self) -> None:
        """End connections that last too long; called twice a second."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, (end, _) in self._open.items() if end < now]
        for connection in late:
            with contextlib.suppress(OSError):
                # That of the socket itself: its thread is in the middle of TLS, and sees an end.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about peers that do not speak TLS or hang up."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
