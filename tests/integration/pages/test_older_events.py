"""Pages of events lead back to the first that is kept, and each event is on one of them."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_master.adapters.pages.shown.feed import MOST_EVENTS
from eva_master.control.state.store import State
from eva_master.model.feed import FeedEvent, FeedKind
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.users import Role
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.pages import Browser, PageMaster, page_master
from tests.fakes.rpc.server import add_instance, add_job, spec

EVENTS = 2 * MOST_EVENTS + 50
DAY_MS = 86_400_000
_OLDER = re.compile(r'<a href="([^"]*)">older events</a>')
_TEXT = re.compile(r"event (\d+)</span>")
_DAY = re.compile(r'<li class="day">([^<]*)</li>')


def happened(state: State) -> JobId:
    """Events of three days: one in ten about a job, one of all a failure."""
    job = add_job(state, spec("train"))
    add_instance(state)
    state.feed.extend(
        FeedEvent(
            number,
            Millis(number * 3 * DAY_MS // (EVENTS + 1)),
            FeedKind.FAILED if number == 1 else FeedKind.UP,
            job=job if number % 10 == 0 else JobId(""),
            instance=InstanceId("" if number % 10 == 0 else "i-1"),
            text=f"event {number}",
        )
        for number in range(1, EVENTS + 1)
    )
    return job


@pytest.fixture
async def pages(tmp_path: Path) -> AsyncIterator[PageMaster]:
    async with page_master(tmp_path) as running:
        await running.master.loop.change(happened)
        yield running


async def numbers(browser: Browser, path: str) -> list[list[int]]:
    """Numbers of the events of a page and those that it leads to, page by page."""
    listed = []
    while path:
        answer = await browser.get(path)
        assert answer.status == 200
        listed.append([int(number) for number in _TEXT.findall(answer.text)])
        assert ("newest</a>" in answer.text) == ("before=" in path and listed[-1][0] < EVENTS)
        following = _OLDER.search(answer.text)
        path = html.unescape(following[1]) if following else ""
    return listed


async def test_each_event_is_on_one_page(pages: PageMaster) -> None:
    browser = await pages.logged_in("vic", Role.VIEWER)
    listed = await numbers(browser, "/events")
    assert [len(page) for page in listed] == [MOST_EVENTS, MOST_EVENTS, 50]
    assert [number for page in listed for number in page] == list(range(EVENTS, 0, -1))
    days = _DAY.findall((await browser.get("/events")).text)
    assert days == ["1970-01-03", "1970-01-02"]


async def test_the_events_of_a_job_and_of_a_kind_are_paged_alike(pages: PageMaster) -> None:
    browser = await pages.logged_in("vic", Role.VIEWER)
    (of_job,) = await numbers(browser, "/events?subject=train-1")
    assert of_job == list(range(EVENTS - EVENTS % 10, 0, -10))
    assert await numbers(browser, "/events?kind=failed") == [[1]]
    assert await numbers(browser, "/events?before=3") == [[2, 1]]


@pytest.mark.parametrize("before", ["x", "-1", "٣", "9" * 30, ""])
async def test_a_number_that_is_none_shows_the_newest(pages: PageMaster, before: str) -> None:
    browser = await pages.logged_in("vic", Role.VIEWER)
    path = f"/events?{urlencode({'before': before})}"
    assert (await numbers(browser, path))[0][0] == EVENTS


async def test_the_command_goes_back_likewise(pages: PageMaster, tmp_path: Path) -> None:
    environment = {
        "EVA_ADDRESS": f"127.0.0.1:{pages.master.ports.users}",
        "EVA_CA_FILE": str(authority().ca_file),
        "EVA_TOKEN": pages.master.tokens.create("vera", Role.VIEWER)[1],
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    async def told(*arguments: str) -> list[int]:
        runner = CliRunner(env=environment)
        result = await asyncio.to_thread(runner.invoke, main, ["events", "--json", *arguments])
        assert result.exit_code == 0, result.output
        return [json.loads(line)["number"] for line in result.stdout.splitlines()]

    newest = await told("-n", "3")
    assert newest == [EVENTS - 2, EVENTS - 1, EVENTS]
    assert await told("-n", "3", "--before", str(newest[0])) == [EVENTS - 5, EVENTS - 4, EVENTS - 3]
    refused = CliRunner(env=environment).invoke(main, ["events", "-f", "--before", "3"])
    assert refused.exit_code == 2
