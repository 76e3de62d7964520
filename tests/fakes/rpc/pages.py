"""Pages over a master's server, and a browser without a screen."""

from __future__ import annotations

import asyncio
import http.client
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from starlette.routing import Route

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.pages.app import Pages, Site
from eva_master.adapters.pages.server import Listener, PageServer, PageSocket
from eva_master.adapters.pages.sessions import CODE_S, BrowserSessions, LoginCodes
from eva_master.adapters.rpc.attach.page_door import PageDoor
from eva_master.adapters.rpc.local_calls import LocalCalls
from eva_master.adapters.rpc.server.tokens import Login
from eva_master.model.actions import Reply
from eva_master.model.fleet.partitions import WHOLE, Partitions
from eva_master.ports import Clock
from eva_wire.values.users import Role
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.server import RpcMaster, accept, rpc_master

HOST = "127.0.0.1:8265"
HOSTS = ("127.0.0.1", "localhost")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("pages", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a browser.

    Attributes:
        headers: By their names in small letters.
    """

    status: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def text(self) -> str:
        """The content as text."""
        return self.data.decode()


@dataclass
class Browser:
    """A browser with one jar of cookies.

    Attributes:
        path: The socket of the pages.
        host: Where it believes that it is.
    """

    path: str
    host: str = HOST
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **headers: str) -> Answer:
        """Get a page."""
        return await asyncio.to_thread(self.ask, "GET", path, None, headers)

    async def post(
        self, path: str, fields: Mapping[str, str] | None = None, **headers: str
    ) -> Answer:
        """Send a form from a page of this server."""
        sent = {"origin": f"http://{self.host}", **headers}
        return await asyncio.to_thread(self.ask, "POST", path, urlencode(fields or {}), sent)

    def ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        """Make a request; `_` in names of headers stands for `-`."""
        with self.open(method, path, body, headers) as answer:
            got = {name.lower(): value for name, value in answer.getheaders()}
            data = answer.read()
        for name, morsel in SimpleCookie(got.get("set-cookie", "")).items():
            self.cookies[name] = morsel.value
        return Answer(answer.status, got, data)

    @contextmanager
    def open(
        self,
        method: str,
        path: str,
        body: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Iterator[http.client.HTTPResponse]:
        """Make a request, and have its content read piece by piece."""
        connection = _UnixConnection(self.path)
        sent = {"host": self.host}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None:
            sent["content-type"] = "application/x-www-form-urlencoded"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, sent)
            yield connection.getresponse()
        finally:
            connection.close()


@dataclass
class PageMaster:
    """A running master with pages.

    Attributes:
        directory: Has the key of the sessions.
        path: The socket of the pages.
        routes: All that is served.
    """

    master: RpcMaster
    codes: LoginCodes
    sessions: BrowserSessions
    directory: Path
    path: str
    routes: Sequence[Route]

    def browser(self, host: str = HOST) -> Browser:
        """A browser that nobody has logged in."""
        return Browser(self.path, host)

    async def logged_in(self, owner: str, role: Role) -> Browser:
        """A browser of a user."""
        browser = self.browser()
        token, _ = self.master.tokens.create(owner, role)
        answer = await browser.get(f"/login?code={self.codes.make(token.id)}")
        assert answer.status == 303, answer.text
        return browser


@asynccontextmanager
async def page_master(
    directory: Path,
    answer: Callable[[Any, Any], Reply] = accept,
    extra: Sequence[Listener] = (),
    costs_clock: Clock | None = None,
    partitions: Partitions = WHOLE,
    **site: Any,
) -> AsyncIterator[PageMaster]:
    """Run a server with pages over a control loop that does as it is told."""
    codes, opened = LoginCodes(), PageSocket(directory)
    opened.listen()
    door, login = PageDoor(opened.path), Login(codes.make, round(CODE_S * 1000))
    async with rpc_master(
        directory, answer, pages=door, login=login, costs_clock=costs_clock, partitions=partitions
    ) as master:
        assert master.server is not None
        sessions = BrowserSessions(directory, master.tokens)
        calls = LocalCalls(master.access, master.tokens, master.server.services)
        gateway = master.loop.gateway
        made = Site("test", calls, sessions, codes, SystemClock(), gateway.latest)
        server = PageServer(
            lambda: Pages(made, **site).app(),
            [Listener(opened.listener, HOSTS.__contains__), *extra],
        )
        server.start()
        try:
            routes = Pages(made, **site).routes
            yield PageMaster(master, codes, sessions, directory, opened.path, routes)
        finally:
            await asyncio.to_thread(server.stop)
            opened.close()
