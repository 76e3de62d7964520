"""Changes of all jobs, once a second, encoded once for all who watch them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice, takewhile

import structlog

from eva_master.adapters.loop.gateway import LoopGateway, Watch
from eva_master.adapters.rpc.server.job_messages import SMALL_BYTES, JobMessages
from eva_wire._proto import api_pb2 as pb
from eva_wire.rpc.errors import TooSlow
from eva_wire.values.ids import JobId

_EVERY_S = 1.0
"""From one edition to the next at least."""
_READERS_AT_ONCE, _APART_S, _SPREAD_S = 50, 0.02, 0.8
"""Readers that are sent an edition at once, the time until the next ones, and that until the last
ones at most. So other calls don't wait for the messages of all readers."""
_JOBS_AT_ONCE = 500
"""Jobs that a reader who is behind, or new, is told of before the next look at what changed."""
_SHARED_JOBS = 5_000
"""An edition of more jobs is encoded for each reader part by part."""
_KEPT_CHANGES = 100_000
"""A reader who has missed more is told to begin anew."""
_ALSO = pb.Job.DESCRIPTOR.fields_by_name["also"].number << 3 | 2
"""The tag of a job within the message of another one."""

log = structlog.get_logger(__name__)


class Editions:
    """Tells many readers of all jobs what changed. Only the asyncio thread uses it.

    Readers that keep up share the messages of the newest edition. For a slow reader only a number
    is kept, by which it finds later changes, in the latest state.

    Args:
        gateway: Tells what changes.
        messages: Makes the messages of jobs.
        pause: Waits from one edition to the next.
        wait: Waits for so many seconds before it is a reader's turn.
    """

    def __init__(
        self,
        gateway: LoopGateway,
        messages: JobMessages,
        pause: Callable[[], Awaitable[None]] | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._gateway = gateway
        self._messages = messages
        self._pause = pause or partial(asyncio.sleep, _EVERY_S)
        self._wait = wait
        self._readers = 0
        self._changes = 0
        """How many changes there were; they are numbered from 1."""
        self._last: dict[JobId, int] = {}
        """The number of each job's newest change, in order."""
        self._forgotten = 0
        """The number of the last change that is not kept any more."""
        self._begun_after = 0
        """The number of the last change before the newest edition."""
        self._newest: Sequence[bytes] | None = None
        """The messages of the newest edition; `None` if they could not be made."""
        self._news = asyncio.Event()
        self._woken = 0
        """Readers that waited for the newest edition and know that it is there."""
        self._publishing = ExitStack()

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Follow all jobs until the context is left."""
        if not self._readers:
            self._begin()
        self._readers += 1
        try:
            yield Reader(self, self._changes)
        finally:
            self._readers -= 1
            if not self._readers:
                self._publishing.close()
                self._forgotten, self._newest = self._changes, None
                self._last.clear()

    def _begin(self) -> None:
        """From here on no change is missed, until the stack is closed."""
        watch = self._publishing.enter_context(self._gateway.watch())
        self._publishing.callback(asyncio.create_task(self._publish(watch)).cancel)

    async def _publish(self, watch: Watch) -> None:
        async for changed in watch:
            await self._add(sorted(changed))
            await self._pause()

    async def _add(self, changed: Sequence[JobId]) -> None:
        """Make an edition and wake its readers."""
        newest = None
        if len(changed) <= _SHARED_JOBS:
            try:
                newest = [message async for message in batches(self._messages, changed)]
            except Exception as error:  # Each reader gets it when it asks for the same jobs.
                log.warning("changes were not encoded", jobs=len(changed), reason=str(error))
        self._begun_after, self._newest = self._changes, newest
        for name in changed:
            self._changes += 1
            self._last.pop(name, None)
            self._last[name] = self._changes
        for name in list(islice(self._last, max(0, len(self._last) - _KEPT_CHANGES))):
            self._forgotten = self._last.pop(name)
        news, self._news, self._woken = self._news, asyncio.Event(), 0
        news.set()

    async def _turn(self) -> None:
        """Wait until it is the turn of one more reader of the newest edition."""
        portion, self._woken = self._woken // _READERS_AT_ONCE, self._woken + 1
        if portion:
            portions = max(portion, self._readers // _READERS_AT_ONCE)
            await self._wait(portion * min(_APART_S, _SPREAD_S / portions))

    async def all(self) -> AsyncIterator[bytes]:
        """The jobs that have not ended, newest first."""
        last: JobId | None = None
        while True:
            model = await self._gateway.model()
            names = [job.id for job in islice(model.newest(last), _JOBS_AT_ONCE)]
            if not names:
                return
            async for message in batches(self._messages, names):
                yield message
            last = names[-1]

    async def since(self, number: int) -> tuple[int, AsyncIterator[bytes]]:
        """Changes after a change, once there are any.

        Args:
            number: Of the last change that the reader knows of; 0 if it knows of none.

        Returns:
            The number of the last change that the messages tell of, and the messages.

        Raises:
            TooSlow: Too many jobs have changed since.
        """
        while number >= self._changes:
            await self._news.wait()
            await self._turn()
        if number == self._begun_after and self._newest is not None:
            return self._changes, _each(self._newest)
        if number < self._forgotten:
            raise TooSlow(
                f"more than {_KEPT_CHANGES:,} jobs changed since the last message was read",
                hint="watch again, and read without long breaks",
            )
        newer = takewhile(lambda name: self._last[name] > number, reversed(self._last))
        names = list(newer)[: -_JOBS_AT_ONCE - 1 : -1]
        return self._last[names[-1]], batches(self._messages, names)


class Reader:
    """The place of one reader in the changes of all jobs."""

    def __init__(self, editions: Editions, number: int) -> None:
        self._editions = editions
        self._number = number

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """All jobs, then what changes, for ever."""
        async for message in self._editions.all():
            yield message
        while True:
            self._number, messages = await self._editions.since(self._number)
            async for message in messages:
                yield message


async def batches(messages: JobMessages, names: Sequence[JobId]) -> AsyncIterator[bytes]:
    """Jobs as messages of several jobs each, as large as is sent without waiting for others."""
    together = bytearray()
    async for message in messages.all(names):
        data = message.data
        if together and len(together) + len(data) > SMALL_BYTES - _HEAD_BYTES:
            yield bytes(together)
            together.clear()
        if together:
            together += _head(len(data))
        together += data
    if together:
        yield bytes(together)


_HEAD_BYTES = 8


def _head(size: int) -> bytes:
    """The tag and the length of a job within another one's message."""
    return b"".join(map(_varint, (_ALSO, size)))


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


async def _each(messages: Sequence[bytes]) -> AsyncIterator[bytes]:
    for message in messages:
        yield message
