"""Wiring of the pages of a master."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from eva_master.adapters.pages.app import Pages, Site
from eva_master.adapters.pages.certificate import ShownCertificate
from eva_master.adapters.pages.server import Listener, PageServer, PageSocket, tcp_listener
from eva_master.adapters.pages.sessions import CODE_S, BrowserSessions, LoginCodes
from eva_master.adapters.pki.server import ServerIdentity
from eva_master.adapters.rpc.attach.page_door import PageDoor
from eva_master.adapters.rpc.local_calls import Calls
from eva_master.adapters.rpc.server.tokens import Login
from eva_master.adapters.store import UserTokens
from eva_master.app.config import MasterConfig
from eva_master.ports import Clock

_HERE = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""The names under which browsers know the machine on which `eva ui` runs."""

log = structlog.get_logger(__name__)


class PageSite:
    """The pages of a master, from its start to its stop.

    Args:
        config: The settings.
        identity: The master's certificate, for pages without one of their own.
        tokens: The tokens of this cluster.
        clock: The present time.

    Attributes:
        door: The way to the pages for users of the RPC port.
        login: Makes codes for browsers.

    Raises:
        InvalidConfig: The file of the key for cookies holds none.
    """

    def __init__(
        self, config: MasterConfig, identity: ServerIdentity, tokens: UserTokens, clock: Clock
    ) -> None:
        self._cluster, self._clock = config.cluster, clock
        self._codes = LoginCodes()
        self._sessions = BrowserSessions(config.state_dir / "pki", tokens)
        self._settings, self._identity = config.ui, identity
        self._address = ""
        self._socket = PageSocket(config.state_dir)
        self._listeners = [Listener(self._socket.listener, _HERE.__contains__)]
        self._server: PageServer | None = None
        self.door = PageDoor(self._socket.path, config.limits.connections_per_forward)
        self.login = Login(self._codes.make, round(CODE_S * 1000), lambda: self._address)

    def open(self, calls: Calls, model: Callable[[], object]) -> None:
        """Begin to serve pages.

        Args:
            calls: The services.
            model: The newest model of the cluster, to be compared alone.

        Raises:
            InvalidConfig: A socket cannot be made, or the certificate cannot be read.
        """
        self._socket.listen()
        if self._settings.listen is not None:
            self._listeners.append(self._named(self._settings.listen))
            log.info("pages are served", address=self._address)
        site = Site(self._cluster, calls, self._sessions, self._codes, self._clock, model)
        self._server = PageServer(lambda: Pages(site).app(), self._listeners)
        self._server.start()

    def _named(self, address: str) -> Listener:
        """Listen under a name of the operator's."""
        given = self._settings.certificate
        shown = ShownCertificate(lambda: given or self._identity.current().file)
        listener = tcp_listener("ui.listen", address)
        self._address = f"https://{shown.name}:{listener.getsockname()[1]}"
        return Listener(listener, shown.covers, shown.context)

    def close(self) -> None:
        """End all connections to pages, and close their sockets."""
        if self._server is not None:
            self._server.stop()
        for listener in self._listeners[1:]:
            listener.socket.close()
        self._socket.close()
