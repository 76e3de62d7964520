"""An HTTPS server on a thread, which picks up a renewed certificate."""

from __future__ import annotations

from ssl import SSLContext
from threading import Thread
from wsgiref.types import WSGIApplication

from eva_master.adapters.pki.server import Credentials, ServerIdentity
from eva_wire.service.scrapes import ScrapeServer
from eva_wire.values.errors import InvalidConfig

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
        self._identity = identity
        self._shown: Credentials | None = None
        try:
            self._server = ScrapeServer(
                address.strip("[]"),
                port,
                application,
                self._renew,
                connections=_CONNECTIONS,
                connections_per_host=_CONNECTIONS_PER_HOST,
            )
        except OSError as error:
            raise InvalidConfig(
                f"cannot listen on {address}:{port}: {error.strerror}",
                hint="another process may have this port",
            ) from error
        self.port = self._server.server_port
        self._thread = Thread(target=self._server.serve_forever, name="https", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and end the thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _renew(self, context: SSLContext) -> None:
        current = self._identity.current()
        if current is not self._shown:
            context.load_cert_chain(current.file)
            self._shown = current
