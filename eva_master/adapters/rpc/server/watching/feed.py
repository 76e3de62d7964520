"""Streams of events, read from the journal: bounded memory however slowly they are read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from dataclasses import replace

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.explain import find
from eva_master.model.changes import Changes
from eva_master.model.feed import FeedEvent
from eva_master.ports import Clock
from eva_master.ports.reading import Archive, FeedPage, ReadModel
from eva_wire.rpc.errors import BadRequest

_PAGE = 500
_MOST_OF_THE_NEWEST = 1_000
_PAUSE_S = 1.0
"""A reader who follows is told what came in this time together."""


class FeedStreams:
    """Streams of events for all callers.

    Args:
        gateway: Tells that there is news.
        archive: Has the events.
        clock: The time up to which a job is looked at.
    """

    def __init__(self, gateway: LoopGateway, archive: Archive, clock: Clock) -> None:
        self._gateway, self._archive, self._clock = gateway, archive, clock
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        gateway.observe(self._changed)

    async def of(
        self, owner: str, request: pb.EventsRequest
    ) -> AsyncGenerator[pb.EventsResponse, None]:
        """Events in pages, oldest first; with `follow` it goes on for ever.

        Args:
            owner: The caller, whose jobs may be named.
            request: The events that are asked for.

        Raises:
            NotFound: There is no such job or instance.
            BadRequest: The subject is neither.
        """
        page = await self._gateway.read(lambda model: self._page_of(model, owner, request))
        if request.last:
            most = min(request.last, _MOST_OF_THE_NEWEST)
            newest = await self._read(replace(page, most=most, newest=True))
            if newest:
                yield _message(newest)
                page = replace(page, after=newest[-1].number)
            if not request.follow:
                return
        while True:
            news = self._news()
            events = await self._read(page)
            if events:
                yield _message(events)
                page = replace(page, after=events[-1].number)
            if len(events) == _PAGE:
                continue
            if not request.follow:
                return
            await news
            await asyncio.sleep(_PAUSE_S)

    def _page_of(self, model: ReadModel, owner: str, request: pb.EventsRequest) -> FeedPage:
        if request.after < 0 or request.before < 0 or request.last < 0:
            raise BadRequest("numbers of events are positive")
        if request.before and request.follow:
            raise BadRequest("no event comes from now on before one that is known")
        page = FeedPage(after=request.after, before=request.before, most=_PAGE)
        if not request.subject:
            return page
        subject = find(model, self._archive, owner, request.subject, self._clock.now())
        if subject is None or isinstance(subject, int) or subject.kind not in ("job", "instance"):
            raise BadRequest(f"{request.subject!r} is neither a job nor an instance")
        if subject.kind == "job":
            return replace(page, job=subject.name)
        return replace(page, instance=subject.name)

    async def _read(self, page: FeedPage) -> list[FeedEvent]:
        return await self._gateway.read(lambda _: list(self._archive.events(page)))

    def _news(self) -> asyncio.Future[None]:
        """A future that is done once there are events which are not committed now."""
        future = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.add(future)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: asyncio.Future[None]) -> None:
        with self._lock:
            self._waiting.discard(future)

    def _changed(self, changes: Changes) -> None:
        """Wake the readers; called in the control loop's thread."""
        if not changes.feed:
            return
        with self._lock:
            woken, self._waiting = self._waiting, set()
        for future in woken:
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _message(events: list[FeedEvent]) -> pb.EventsResponse:
    return pb.EventsResponse(events=map(message_of, events))


def message_of(event: FeedEvent) -> pb.FeedEvent:
    """Convert an event to a message."""
    return pb.FeedEvent(
        number=event.number,
        at_ms=event.at_ms,
        kind=event.kind.value,
        job=event.job,
        task=event.task,
        instance=event.instance,
        owner=event.owner,
        text=event.text,
    )
