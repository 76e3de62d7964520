"""Open pages are rendered once for all who see the same, with pauses, and when they change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from markupsafe import Markup

from eva_master.adapters.pages.live import Follower, Key, Live, NewestRendering
from eva_master.adapters.pages.page import Asked, Audience, Page
from eva_master.adapters.pages.rendering import Content
from eva_master.adapters.pages.sessions import BrowserSession
from eva_wire.values.errors import Busy, NotFound
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role, UserToken
from tests.fakes.patience import DEADLINE_S


async def nothing(_ask: Any, _asked: Asked) -> None:
    """No view."""


PAGE = Page("/x", "X", "x.html", nothing, lambda _views, _asked: {}, refresh_s=1e6)
KEY = Key(PAGE, "/x", (), (), Audience(Role.VIEWER))


def session(owner: str = "ana") -> BrowserSession:
    token = UserToken(f"id-{owner}", owner, Role.VIEWER, "", Millis(0))
    return BrowserSession(token, f"session-{owner}", Millis(10**9))


@dataclass
class World:
    """A cluster whose only page shows a number; time passes while somebody waits."""

    now: float = 100.0
    number: int = 0
    model: object = field(default_factory=object)
    rendered: list[tuple[float, str]] = field(default_factory=list)
    cost_s: float = 0.0
    restless: bool = False
    fault: Exception | None = None

    def __post_init__(self) -> None:
        self.live = Live(self.render, lambda: self.model, self.asked, lambda: self.now, self.sleep)

    def change(self) -> None:
        self.number += 1
        self.model = object()

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def render(self, page: Page, asked: Asked, token: str) -> Content:
        if self.fault is not None:
            raise self.fault
        self.rendered.append((self.now, token))
        self.now += self.cost_s
        if self.restless:
            self.change()
        return Content(Markup("whole"), {"changing": f"<p>{self.number}</p>", "still": "<p>x</p>"})

    def asked(self, key: Key) -> Asked:
        return Asked(key.path, {}, {}, key.audience, Millis(0))

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.until(lambda: len(asyncio.all_tasks()) == 1)


@contextmanager
def followed(world: World, entry: NewestRendering, followers: list[Follower]) -> Iterator[None]:
    with ExitStack() as stack:
        for follower in followers:
            stack.enter_context(world.live.follow(entry, follower))
        yield


async def test_a_change_is_rendered_and_encoded_once_for_all(world: World) -> None:
    entry = await world.live.entry(KEY, session())
    cursor = world.live.cursor(entry)
    followers = [Follower(session(f"user-{number}")) for number in range(50)]
    with followed(world, entry, followers):
        world.change()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(follower.bell.wait() for follower in followers))
        assert len(world.rendered) == 2
        messages = [world.live.message(entry, cursor) for _ in followers]
        assert len({id(message[1]) for message in messages if message}) == 1
        assert messages[0] is not None
        event = json.loads(messages[0][1])
        assert event == {"at": messages[0][0], "parts": {"changing": "<p>1</p>"}}
        assert world.live.message(entry, messages[0][0]) is None


async def test_renderings_of_a_page_are_a_second_apart_however_much_changes(world: World) -> None:
    world.restless = True
    entry = await world.live.entry(KEY, session())
    with followed(world, entry, [Follower(session())]):
        await world.until(lambda: len(world.rendered) >= 20)
    times = [at for at, _ in world.rendered]
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(times))


async def test_all_open_pages_together_take_a_small_part_of_a_core(world: World) -> None:
    world.restless, world.cost_s = True, 0.2
    keys = [Key(PAGE, f"/x{number}", (), (), Audience(Role.VIEWER)) for number in range(5)]
    entries = [await world.live.entry(key, session()) for key in keys]
    began, before = world.now, len(world.rendered)
    with ExitStack() as stack:
        for entry in entries:
            stack.enter_context(followed(world, entry, [Follower(session())]))
        await world.until(lambda: len(world.rendered) >= before + 30)
    spent = 0.2 * (len(world.rendered) - before)
    assert spent <= 0.08 * (world.now - began)


async def test_nothing_is_rendered_that_has_not_changed_or_that_nobody_follows(
    world: World,
) -> None:
    entry = await world.live.entry(KEY, session())
    with followed(world, entry, [Follower(session())]):
        await world.until(lambda: world.now > 110)
        # A follower who begins may have missed a change.
        assert len(world.rendered) == 2
        await world.until(lambda: world.now > 200)
    assert entry.task is None
    world.change()
    await world.until(lambda: len(asyncio.all_tasks()) == 1)
    assert len(world.rendered) == 2


async def test_a_page_that_is_asked_for_again_within_a_second_is_not_rendered(
    world: World,
) -> None:
    first = await world.live.entry(KEY, session())
    world.now += 0.9
    assert await world.live.entry(KEY, session("ben")) is first
    assert len(world.rendered) == 1
    world.now += 0.2
    await world.live.entry(KEY, session("ben"))
    assert len(world.rendered) == 2
    world.live.forget()
    await world.live.entry(KEY, session("ben"))
    assert len(world.rendered) == 3


async def test_an_audience_has_renderings_of_its_own(world: World) -> None:
    for role in Role:
        await world.live.entry(Key(PAGE, "/x", (), (), Audience(role)), session())
    assert len(world.rendered) == len(Role)


async def test_one_who_may_ask_no_more_is_followed_by_another(world: World) -> None:
    entry = await world.live.entry(KEY, session())
    followers = [Follower(session("ana")), Follower(session("ben"))]
    world.fault = Busy("too many calls")
    with followed(world, entry, followers):
        world.change()
        then = world.now
        await world.until(lambda: world.now > then + 5)
        assert entry.error is None
        world.fault = None
        await world.until(lambda: len(world.rendered) > 1)
        assert entry.content is not None
        assert entry.content.live["changing"] == "<p>1</p>"


async def test_a_page_that_is_no_more_wakes_its_followers(world: World) -> None:
    entry = await world.live.entry(KEY, session())
    follower = Follower(session())
    with followed(world, entry, [follower]):
        world.fault = NotFound("the job is gone")
        world.change()
        async with asyncio.timeout(DEADLINE_S):
            await follower.bell.wait()
        assert entry.error is world.fault


@pytest.mark.parametrize("cursor", ["", "other.7", "x", "..", "other.99999999999999999999"])
async def test_a_browser_of_an_earlier_master_gets_all_parts(world: World, cursor: str) -> None:
    entry = await world.live.entry(KEY, session())
    message = world.live.message(entry, cursor)
    assert message is not None
    assert json.loads(message[1])["parts"].keys() == {"changing", "still"}
