"""Requests, forms and streams have bounds, over real connections."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup

from eva_master.adapters.pages import guard
from eva_master.adapters.pages.page import Asked, Page
from eva_master.adapters.pages.rendering import Content, Templates
from eva_wire.values.users import Role
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.pages import HOST, Browser, PageMaster, page_master
from tests.fakes.rpc.server import add_job, spec


async def nothing(_ask: Any, _asked: Asked) -> None:
    """No view."""


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[PageMaster]:
    async with page_master(tmp_path) as running:
        yield running


async def raw(path: str, data: bytes) -> bytes:
    """The answer to bytes on a connection, up to its end."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    async with asyncio.timeout(DEADLINE_S):
        answer = await reader.read()
    writer.close()
    return answer


async def test_a_head_without_end_is_cut_off(pages: PageMaster) -> None:
    head = f"GET / HTTP/1.1\r\nhost: {HOST}\r\n".encode()
    answer = await raw(pages.path, head + b"x: " + b"y" * 20_000)
    assert answer.startswith(b"HTTP/1.1 400") or answer == b""


@pytest.mark.parametrize("declared", [True, False])
async def test_a_form_beyond_the_bound_is_refused(pages: PageMaster, declared: bool) -> None:
    head = (
        f"POST /logout HTTP/1.1\r\nhost: {HOST}\r\norigin: http://{HOST}\r\nconnection: close\r\n"
    )
    body = b"a" * (guard.MOST_BODY_BYTES + 1)
    if declared:
        sent = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    else:
        chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
        sent = f"{head}transfer-encoding: chunked\r\n\r\n".encode() + chunk
    assert (await raw(pages.path, sent)).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_other_methods_are_refused(pages: PageMaster, method: str) -> None:
    browser = await pages.logged_in("ana", Role.OPERATOR)
    assert (await asyncio.to_thread(browser.ask, method, "/", None, {})).status == 405


async def test_a_code_is_not_used_up_by_a_look_at_its_head(pages: PageMaster) -> None:
    token, _ = pages.master.tokens.create("ana", Role.USER)
    code = pages.codes.make(token.id)
    browser = pages.browser()
    await asyncio.to_thread(browser.ask, "HEAD", f"/login?code={code}", None, {})
    assert (await browser.get(f"/login?code={code}")).status == 303


async def test_a_form_of_many_fields_or_of_another_kind_is_refused(pages: PageMaster) -> None:
    job = await pages.master.loop.change(lambda state: add_job(state, spec("x", owner="ana")))
    browser = await pages.logged_in("ana", Role.USER)
    many = {f"field{number}": "x" for number in range(50)}
    assert (await browser.post(f"/jobs/{job}/cancel", many)).status == 400
    other = await browser.post(f"/jobs/{job}/cancel", {"now": "yes"}, content_type="text/plain")
    assert other.status == 400
    assert pages.master.loop.commands == []


def streams_of(pages: PageMaster, owner: str) -> int:
    return pages.master.access.pacing.streams_of(owner)


async def until(condition: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def opened(browser: Browser, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A stream of a page."""
    ((name, value),) = browser.cookies.items()
    connection = socket.socket(socket.AF_UNIX)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    connection.connect(browser.path)
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=2**22)
    head = f"GET /live?on={path}&at= HTTP/1.1\r\nhost: {HOST}\r\ncookie: {name}={value}\r\n\r\n"
    writer.write(head.encode())
    return reader, writer


async def test_a_change_reaches_an_open_page_and_its_stream_ends_with_the_browser(
    pages: PageMaster,
) -> None:
    browser = await pages.logged_in("ana", Role.VIEWER)
    reader, writer = await opened(browser, "/")
    async with asyncio.timeout(DEADLINE_S):
        await reader.readuntil(b"data: ")
        first = json.loads(await reader.readuntil(b"\n\n"))
        await pages.master.loop.change(lambda state: add_job(state, spec("x")))
        await reader.readuntil(b"data: ")
        second = json.loads(await reader.readuntil(b"\n\n"))
    assert first["parts"].keys() >= second["parts"].keys() > set()
    assert first["at"] != second["at"]
    assert streams_of(pages, "ana") == 1
    writer.close()
    await until(lambda: streams_of(pages, "ana") == 0)


async def test_a_session_that_ends_ends_its_streams(pages: PageMaster) -> None:
    browser = await pages.logged_in("ana", Role.VIEWER)
    reader, writer = await opened(browser, "/")
    async with asyncio.timeout(DEADLINE_S):
        await reader.readuntil(b"data: ")
        await browser.post("/logout")
        await reader.readuntil(b"event: end\n")
    await until(lambda: streams_of(pages, "ana") == 0)
    writer.close()


async def test_a_browser_that_does_not_read_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = count()

    def large(*_: Any) -> Content:
        return Content(Markup(""), {"part": f"{next(numbers)}" * 10**6})

    monkeypatch.setattr(guard, "_WRITE_S", 0.5)
    monkeypatch.setattr(Templates, "content", large)
    page = Page("/large", "Large", "", nothing, lambda _views, _asked: {}, refresh_s=0.1)
    async with page_master(tmp_path, pages=(page,)) as pages:
        browser = await pages.logged_in("ana", Role.VIEWER)
        reader, writer = await opened(browser, "/large")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: streams_of(pages, "ana") == 1)
        await until(lambda: streams_of(pages, "ana") == 0)
        assert not reader.at_eof()
        writer.close()
