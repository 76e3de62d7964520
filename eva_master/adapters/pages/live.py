"""Renders pages once for all who see the same, and again for open copies when something changes.

Only the event loop of the pages uses this module.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

from eva_master.adapters.pages.page import Asked, Audience, Page
from eva_master.adapters.pages.rendering import Content
from eva_master.adapters.pages.sessions import BrowserSession
from eva_master.adapters.rpc.handlers import told_error
from eva_wire.values.errors import Busy, EvaError, NotAuthenticated

EVERY_S = 1.0
"""From one rendering of a page to the next at least."""
_SHARE = 12
"""After a rendering all open copies wait for so many times as long as it took: they have that part
of a core together."""
_LONGEST_PAUSE_S = 5.0
_LOOK_S = 0.25
_MOST_KEPT = 64
"""Renderings that are kept though nobody follows them."""


@dataclass(frozen=True, slots=True)
class Key:
    """All that a rendering depends on.

    Attributes:
        page: The page.
        path: As it was asked for.
        names: Parts of the path, in order.
        query: Parameters, in order.
        audience: The viewers.
    """

    page: Page
    path: str
    names: tuple[tuple[str, str], ...]
    query: tuple[tuple[str, str], ...]
    audience: Audience

    @property
    def topic(self) -> str:
        """The page's name in streams: its path and parameters."""
        return self.path + (f"?{urlencode(self.query)}" if self.query else "")


@dataclass(eq=False, slots=True)
class Follower:
    """An open copy of pages: its session, and a bell that rings when one of them has changed."""

    session: BrowserSession
    bell: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False, slots=True)
class NewestRendering:
    """The newest rendering of a page.

    Attributes:
        content: The page; `None` before the first rendering.
        edition: Grows with each rendering in which a part changed.
        changed: The edition in which each live part changed last.
        model: Number of the model that it was rendered from, or of an earlier one.
        error: Why the page cannot be shown any more.
    """

    key: Key
    content: Content | None = None
    at_s: float = 0.0
    edition: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    model: int = 0
    error: EvaError | None = None
    followers: OrderedDict[Follower, None] = field(default_factory=OrderedDict)
    task: asyncio.Task[None] | None = None
    rendering: asyncio.Lock = field(default_factory=asyncio.Lock)
    newest: tuple[int, bytes] = (0, b"")


Render = Callable[[Page, Asked, str], Awaitable[Content]]
"""Renders a page with the rights of the token of an id."""


class Live:
    """The renderings of all pages.

    Args:
        render: Renders a page.
        model: The newest model of the cluster: another one each time something has changed.
        asked: Makes the question of a key.
        now_s: A monotonic clock in seconds.
        sleep: Waits for so many of its seconds.
    """

    def __init__(
        self,
        render: Render,
        model: Callable[[], object],
        asked: Callable[[Key], Asked],
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._render = render
        self._model = model
        self._asked = asked
        self._now_s = now_s
        self._sleep = sleep
        self._entries: dict[Key, NewestRendering] = {}
        self._epoch = secrets.token_hex(4)
        self._line = asyncio.Lock()
        self._free_s = 0.0
        self._seen: object = None
        self._changes = 0
        self._looker: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def entry(self, key: Key, session: BrowserSession) -> NewestRendering:
        """The entry of a page that was rendered within the last second, or is followed.

        Raises:
            EvaError: The viewer may not see it, or it fails.
        """
        entry = self._kept(key)
        async with entry.rendering:
            lasts_s = entry.key.page.refresh_s if entry.followers else EVERY_S
            if entry.content is None or self._now_s() - entry.at_s >= lasts_s:
                await self._anew(entry, session)
        return entry

    def forget(self) -> None:
        """Have pages rendered anew when they are asked for: a viewer has changed something."""
        for entry in self._entries.values():
            entry.at_s = float("-inf")

    def cursor(self, entry: NewestRendering) -> str:
        """Names an edition, for browsers that follow a page later."""
        return f"{self._epoch}.{entry.edition}"

    @contextmanager
    def follow(self, entry: NewestRendering, follower: Follower) -> Iterator[None]:
        """Have a page rendered while somebody follows it."""
        entry.followers[follower] = None
        if entry.task is None:
            entry.task = asyncio.create_task(self._follow(entry), name="live page")
        if self._looker is None:
            self._looker = asyncio.create_task(self._look(), name="live pages")
        try:
            yield
        finally:
            entry.followers.pop(follower, None)
            if not entry.followers and entry.task is not None:
                entry.task.cancel()
                entry.task = None

    def message(self, entry: NewestRendering, cursor: str) -> tuple[str, bytes] | None:
        """The parts of a page that changed after an edition.

        Args:
            entry: The page.
            cursor: Names the edition; empty, or of another master, for none.

        Returns:
            The cursor after it and the parts as JSON, `None` if there is nothing new.
        """
        epoch, _, number = cursor.partition(".")
        held = int(number) if epoch == self._epoch and number.isdigit() else 0
        if held >= entry.edition or entry.content is None:
            return None
        if entry.newest[0] != held or not entry.newest[1]:
            parts = {
                name: html
                for name, html in entry.content.live.items()
                if entry.changed[name] > held
            }
            entry.newest = held, self._json(entry, parts)
        return self.cursor(entry), entry.newest[1]

    def _json(self, entry: NewestRendering, parts: Mapping[str, str]) -> bytes:
        message = {"at": self.cursor(entry), "parts": parts}
        return json.dumps(message, separators=(",", ":")).encode()

    def _kept(self, key: Key) -> NewestRendering:
        entry = self._entries.pop(key, None) or NewestRendering(key)
        self._entries[key] = entry
        if len(self._entries) > _MOST_KEPT:
            idle = [other for other in self._entries.values() if not other.followers]
            for other in idle[: max(0, len(idle) - _MOST_KEPT)]:
                del self._entries[other.key]
        return entry

    async def _anew(self, entry: NewestRendering, session: BrowserSession) -> None:
        """Render a page; the caller holds its lock."""
        key = entry.key
        entry.model = self._changes
        content = await self._render(key.page, self._asked(key), session.token.id)
        before = {} if entry.content is None else entry.content.live
        parts = {name: html for name, html in content.live.items() if before.get(name) != html}
        entry.content, entry.at_s, entry.error = content, self._now_s(), None
        if parts or before.keys() - content.live.keys():
            entry.edition += 1
            entry.changed = {
                name: entry.edition if name in parts else entry.changed[name]
                for name in content.live
            }
            entry.newest = 0, b""
            for follower in entry.followers:
                follower.bell.set()

    # -- open copies -----------------------------------------------------------------------------

    async def _look(self) -> None:
        """Look for a newer model while somebody follows a page; the control loop tells nothing."""
        while any(entry.followers for entry in self._entries.values()):
            model = self._model()
            if model is not self._seen:
                self._seen, news = model, self._news
                self._changes += 1
                self._news = asyncio.Event()
                news.set()
            await self._sleep(_LOOK_S)
        self._seen, self._looker = None, None

    async def _follow(self, entry: NewestRendering) -> None:
        while True:
            await self._due(entry)
            await self._turn(entry)

    async def _due(self, entry: NewestRendering) -> None:
        """Wait until something has changed, or for as long as the page may stay as it is."""
        try:
            async with asyncio.timeout(entry.key.page.refresh_s):
                while entry.model == self._changes:
                    await self._news.wait()
                await self._sleep(max(0.0, entry.at_s + EVERY_S - self._now_s()))
        except TimeoutError:
            pass

    async def _turn(self, entry: NewestRendering) -> None:
        """Render a page for its followers when it is its turn: one at a time, with pauses."""
        async with self._line:
            await self._sleep(max(0.0, self._free_s - self._now_s()))
            follower = next(iter(entry.followers))
            began_s = self._now_s()
            try:
                async with entry.rendering:
                    await self._anew(entry, follower.session)
            except (Busy, NotAuthenticated):  # The next one may fare better; streams look as well.
                if follower in entry.followers:
                    entry.followers.move_to_end(follower)
                entry.model, entry.at_s = -1, self._now_s()
            except Exception as error:
                entry.error = told_error(error, entry.key.path)
                for other in entry.followers:
                    other.bell.set()
            cost_s = self._now_s() - began_s
            self._free_s = self._now_s() + min(_LONGEST_PAUSE_S, cost_s * _SHARE)
