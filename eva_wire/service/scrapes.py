"""Metrics of a service over HTTPS, on threads, with a certificate that may be renewed."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_SILENT_S = 5.0
"""Seconds of silence after which a client is disconnected."""
_WITHIN_S = 15.0
"""Seconds after which a client is disconnected, whatever it has sent and read by then."""
_PATH = "/metrics"


def at_its_path(application: WSGIApplication) -> WSGIApplication:
    """Make an application that answers ``/metrics`` alone, and 404 at every other path."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == _PATH:
            return application(environ, start)
        start("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"metrics are at {_PATH}\n".encode()]

    return answer


class _Quiet(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes are not worth a line."""


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """An HTTPS server with a thread for each connection, and a bound on these.

    Args:
        address: Of an interface, or the name of one.
        port: 0 takes any that is free.
        application: Called in a thread per connection.
        renew: Loads the present certificate into the context if it is another one than before.
        connections: More at a time are closed at once.
        connections_per_host: More at a time from one address are closed at once.

    Raises:
        OSError: The address cannot be bound.
    """

    daemon_threads = True

    def __init__(
        self,
        address: str,
        port: int,
        application: WSGIApplication,
        renew: Callable[[ssl.SSLContext], None],
        *,
        connections: int,
        connections_per_host: int,
    ) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, tuple[float, str]] = {}
        """Connections that are being served: when they end at the latest, and whose they are."""
        self._renew = renew
        self._most, self._most_per_host = connections, connections_per_host
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.address_family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((address, port), _Quiet)
        self.set_app(application)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection with the present certificate."""
        connection, peer = super().get_request()
        self._renew(self._context)
        # The connection's own thread does the handshake, since the peer may be slow.
        return self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        ), peer

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, unless there are too many."""
        with self._lock:
            same = sum(host == client_address[0] for _, host in self._open.values())
            refused = len(self._open) >= self._most or same >= self._most_per_host
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
