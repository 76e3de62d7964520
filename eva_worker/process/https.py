"""An HTTPS server on a thread, which picks up a renewed certificate."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

_SILENT_S = 5.0
"""Seconds of silence after which a client is disconnected."""
_WITHIN_S = 15.0
"""Seconds after which a client is disconnected, whatever it has sent and read by then."""
_CONNECTIONS = 8
"""More are closed at once: a thread serves each of them."""


def serve(port: int, application: WSGIApplication, *, certificate: Path, key: Path) -> None:
    """Serve an application from a thread, on the loopback interface only, without end.

    Args:
        port: Where to listen.
        application: Called in a thread per connection.
        certificate: File of the certificate, in PEM; read again when it has changed.
        key: File of the private key, in PEM.

    Raises:
        OSError: Another process has the port.
    """
    server = _Server(port, certificate, key)
    server.set_app(application)
    Thread(target=server.serve_forever, name="https", daemon=True).start()


class _Quiet(WSGIRequestHandler):
    timeout = _SILENT_S

    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes are not worth a line."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, port: int, certificate: Path, key: Path) -> None:
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        """Connections that are being served, and when they end at the latest."""
        self._certificate = certificate
        self._key = key
        self._shown = 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        super().__init__(("127.0.0.1", port), _Quiet)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection with the present certificate."""
        connection, peer = super().get_request()
        written = self._certificate.stat().st_mtime_ns
        if written != self._shown:
            self._context.load_cert_chain(self._certificate, self._key)
            self._shown = written
        # The connection's own thread does the handshake, since the peer may be slow.
        return self._context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        ), peer

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection on a thread of its own, unless there are too many."""
        with self._lock:
            refused = len(self._open) >= _CONNECTIONS
            if not refused:
                self._open[request] = time.monotonic() + _WITHIN_S
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
            late = [connection for connection, end in self._open.items() if end < now]
        for connection in late:
            with contextlib.suppress(OSError):
                # That of the socket itself: its thread is in the middle of TLS, and sees an end.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about peers that do not speak TLS or hang up."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
