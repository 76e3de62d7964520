"""The agent's metrics over HTTPS, with the instance's certificate."""

from __future__ import annotations

from pathlib import Path
from ssl import SSLContext
from threading import Thread
from wsgiref.types import WSGIApplication

from eva_wire.service.scrapes import ScrapeServer

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
    shown = 0

    def renew(context: SSLContext) -> None:
        nonlocal shown
        written = certificate.stat().st_mtime_ns
        if written != shown:
            context.load_cert_chain(certificate, key)
            shown = written

    server = ScrapeServer(
        "127.0.0.1",
        port,
        application,
        renew,
        connections=_CONNECTIONS,
        connections_per_host=_CONNECTIONS,
    )
    Thread(target=server.serve_forever, name="https", daemon=True).start()
