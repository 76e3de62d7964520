"""An HTTPS server on a thread, which picks up a renewed certificate."""

from __future__ import annotations

import socket
import ssl
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import WSGIApplication

_SILENT_S = 10.0
"""Seconds of silence after which a client is disconnected."""


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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about peers that do not speak TLS or hang up."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
