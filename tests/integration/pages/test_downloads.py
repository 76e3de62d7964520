"""Stored files of a job, fetched by the links of its page: byte for byte, and never shown."""

from __future__ import annotations

import asyncio
import hashlib
import html
import os
import re
from collections.abc import AsyncIterator
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from eva_master.adapters.objects.store import Objects
from eva_master.adapters.objects.stored_files import PIECE_BYTES
from eva_wire.values.users import Role
from tests.fakes.rpc.pages import PageMaster, page_master
from tests.fakes.rpc.server import add_job, spec

NAMES = (
    "plain.txt",
    "a b  c.txt",
    "é 名前.txt",
    'it\'s "quoted".txt',
    "<img src=x onerror=alert(1)>.html",
    "100%25 &amp; more?x=1#y;z.txt",
    "a+b=c@d,e.txt",
    "\u202egpj.exe",
    "-o",
    ".hidden",
    "deep/er/model.bin",
    "empty",
)
LINK = re.compile(r'<li><a href="([^"]*)" download>([^<]*)</a>')
_AHEAD = 48
"""Pieces that may be on their way: read ahead, in queues and in the connection."""


def content(name: str) -> bytes:
    return b"" if name == "empty" else hashlib.sha256(name.encode()).digest() * 99


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[PageMaster]:
    async with page_master(tmp_path) as running:
        await running.master.loop.change(lambda state: add_job(state, spec("resnet", owner="ana")))
        for name in NAMES:
            await running.master.store.put(f"jobs/resnet-1/0/outputs/{name}", content(name))
        yield running


async def links(pages: PageMaster) -> dict[str, str]:
    """Addresses of the page's links, by the last parts of their paths."""
    browser = await pages.logged_in("ana", Role.USER)
    text = (await browser.get("/jobs/resnet-1")).text
    listed = [html.unescape(address) for address, _ in LINK.findall(text)]
    return {unquote(address).partition("/outputs/")[2]: address for address in listed}


async def test_each_file_comes_byte_for_byte_under_its_own_name(pages: PageMaster) -> None:
    browser = await pages.logged_in("ana", Role.USER)
    addresses = await links(pages)
    assert set(addresses) == set(NAMES)
    for name, address in addresses.items():
        assert re.fullmatch(r"[A-Za-z0-9%/._~+-]+", address)
        answer = await browser.get(address)
        assert (answer.status, answer.data) == (200, content(name)), name
        assert answer.headers["content-length"] == str(len(content(name)))
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        disposition = Message()
        disposition["content-disposition"] = answer.headers["content-disposition"]
        assert disposition.get_content_disposition() == "attachment"
        assert disposition.get_filename() == name.rpartition("/")[2]


async def test_names_of_files_are_text_on_the_page(pages: PageMaster) -> None:
    browser = await pages.logged_in("ana", Role.USER)
    text = (await browser.get("/jobs/resnet-1")).text
    assert "<img" not in text
    assert "\u202e" not in text
    shown = [html.unescape(name) for _, name in LINK.findall(text)]
    assert "0/outputs/<img src=x onerror=alert(1)>.html" in shown
    assert any(name.endswith("gpj.exe") and "202e" in name for name in shown)


@pytest.mark.parametrize(
    ("owner", "role", "status"),
    [("ben", Role.USER, 403), ("vic", Role.VIEWER, 403), ("oda", Role.OPERATOR, 200)],
)
async def test_files_are_for_the_owner_and_operators(
    pages: PageMaster, owner: str, role: Role, status: int
) -> None:
    browser = await pages.logged_in(owner, role)
    for name, address in (await links(pages)).items():
        answer = await browser.get(address)
        assert answer.status == status
        assert (answer.data == content(name)) == (status == 200)
        assert (await pages.browser().get(address)).status == 401
    shown = LINK.findall((await browser.get("/jobs/resnet-1")).text)
    assert len(shown) == (len(NAMES) if status == 200 else 0)


@pytest.mark.parametrize(
    "path", ["outputs/../../../x", "..%2F..%2Fresnet-1%2F0", "outputs/none", ""]
)
async def test_a_path_that_no_listing_has_is_no_file(pages: PageMaster, path: str) -> None:
    browser = await pages.logged_in("ana", Role.USER)
    answer = await browser.get(f"/jobs/resnet-1/files/0/{path}")
    assert 400 <= answer.status < 500
    assert "content-disposition" not in answer.headers


async def test_a_large_file_is_read_no_faster_than_the_browser_takes_it(
    pages: PageMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.urandom(PIECE_BYTES) * 128
    await pages.master.store.put("jobs/resnet-1/0/outputs/large", whole)
    read, piece = 0, Objects.piece

    async def counting(self: Objects, *arguments: Any, **more: Any) -> bytes:
        nonlocal read
        data = await piece(self, *arguments, **more)
        read += len(data)
        return data

    monkeypatch.setattr(Objects, "piece", counting)
    browser = await pages.logged_in("ana", Role.USER)
    taken, digest = 0, hashlib.sha256()

    def take() -> None:
        nonlocal taken
        with browser.open("GET", "/jobs/resnet-1/files/0/outputs/large") as answer:
            while data := answer.read(PIECE_BYTES):
                taken += len(data)
                digest.update(data)
                assert read - taken <= _AHEAD * PIECE_BYTES

    await asyncio.to_thread(take)
    assert (taken, digest.digest()) == (len(whole), hashlib.sha256(whole).digest())
    assert read == len(whole)
