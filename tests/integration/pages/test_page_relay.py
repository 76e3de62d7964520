"""The command's connection carries pages to a port of the user's machine."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from eva_client.attach.forwarding import Forwarding
from eva_client.attach.places import pages as to_pages
from eva_client.rpc.master import Client
from eva_wire.values.errors import EvaError, NotAuthenticated
from eva_wire.values.users import Role, UserToken
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.pages import PageMaster, page_master


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[PageMaster]:
    async with page_master(tmp_path) as running:
        yield running


async def relayed(
    pages: PageMaster, role: Role, use: Callable[[Client, int, UserToken], None]
) -> list[EvaError]:
    """Use a port of this machine that `eva ui` of a user relays; returns what failed meanwhile."""
    token, secret = pages.master.tokens.create("ana", role)
    errors: list[EvaError] = []

    def work() -> list[EvaError]:
        address = f"127.0.0.1:{pages.master.ports.users}"
        with Client(address, authorities=pages.master.authorities, token=secret) as client:
            forwarding = Forwarding(client, to_pages(), errors.append)
            port = forwarding.listen(0, "")

            def run() -> None:
                try:
                    forwarding.run()
                except EvaError as error:
                    errors.append(error)

            running = threading.Thread(target=run, daemon=True)
            running.start()
            use(client, port, token)
            if pages.master.tokens.all()[-1].revoked_ms is not None:
                running.join(DEADLINE_S)
            return list(errors)

    return await asyncio.to_thread(work)


def ask(port: int, path: str, cookie: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request("GET", path, headers={"cookie": cookie} if cookie else {})
    return connection.getresponse()


@pytest.mark.parametrize("role", Role)
async def test_every_role_sees_pages_over_its_own_connection(pages: PageMaster, role: Role) -> None:
    def use(client: Client, port: int, token: UserToken) -> None:
        login = client.login()
        assert (login.lifetime_ms, login.address) == (60_000, "")
        answer = ask(port, f"/login?code={login.code}")
        assert answer.status == 303
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        assert cookie.startswith(f"eva_test_{port}={token.id}.")
        page = ask(port, "/", cookie)
        assert page.status == 200
        assert f"ana, {role.value}" in page.read().decode()

    assert await relayed(pages, role, use) == []


async def test_no_connection_is_made_with_a_token_that_was_revoked(pages: PageMaster) -> None:
    def use(_client: Client, port: int, token: UserToken) -> None:
        pages.master.tokens.revoke(token.id)
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(port, "/")

    (error,) = await relayed(pages, Role.USER, use)
    assert isinstance(error, NotAuthenticated)


async def test_an_open_stream_ends_with_its_token(pages: PageMaster) -> None:
    def use(client: Client, port: int, token: UserToken) -> None:
        answer = ask(port, f"/login?code={client.login().code}")
        cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        stream = ask(port, "/live?on=/&at=", cookie)
        assert stream.status == 200
        assert stream.readline() == b": hello\n"
        pages.master.tokens.revoke(token.id)
        while True:
            try:
                if not stream.readline():
                    return
            except (http.client.HTTPException, OSError):
                return

    (error,) = await relayed(pages, Role.VIEWER, use)
    assert isinstance(error, NotAuthenticated)
