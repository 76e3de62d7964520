"""Browsers log in with a code, and get a cookie that is bound to a token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eva_wire.values.users import Role
from tests.fakes.rpc.pages import PageMaster, page_master


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[PageMaster]:
    async with page_master(tmp_path) as running:
        yield running


async def test_a_code_logs_a_browser_in_once(pages: PageMaster) -> None:
    token, _ = pages.master.tokens.create("ada", Role.VIEWER)
    code = pages.codes.make(token.id)
    browser, thief = pages.browser(), pages.browser()
    answer = await browser.get(f"/login?code={code}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"eva_test_8265={token.id}.")
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert "Overview" in (await browser.get("/")).text
    assert (await thief.get(f"/login?code={code}")).status == 401
    assert not thief.cookies


async def test_a_session_ends_with_its_token(pages: PageMaster) -> None:
    browser = await pages.logged_in("ada", Role.USER)
    assert (await browser.get("/")).status == 200
    (cookie,) = browser.cookies.values()
    pages.master.tokens.revoke(cookie.partition(".")[0])
    answer = await browser.get("/")
    assert answer.status == 401
    assert "was revoked" in answer.text


async def test_nobody_sees_a_page_without_a_session(pages: PageMaster) -> None:
    answer = await pages.browser().get("/")
    assert answer.status == 401
    assert "eva ui" in answer.text
