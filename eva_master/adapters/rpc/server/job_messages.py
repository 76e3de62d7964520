"""Jobs as messages, encoded once for all who watch them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.server import pages, views
from eva_master.model.changes import Changes
from eva_master.ports import Clock
from eva_master.ports.reading import SMALL_JOB, Archive, Pause, ReadModel
from eva_wire.rpc.errors import TooSlow
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import TERMINAL_JOB, JobState

_JOBS_AT_ONCE = 100
_TASKS_AT_ONCE = 1_000
"""Jobs that are turned into messages together have so many tasks at most, or are one."""
_KEPT_S = 2.0
"""Maximum age of times in a message, such as a job's expected end."""
_KEPT_PENDING_S = 20.0
"""Messages of jobs that have not begun, whose costs do not grow, may be so old: where there are
20,000, each reader who begins would else take two seconds of the processor's time."""
_KEPT_BYTES = 32 * 1024 * 1024
SMALL_BYTES = 64 * 1024
"""Messages up to this size are sent without waiting for those of others."""
_UNIT_BYTES = 1024 * 1024
_UNITS_PER_USER = 16
_UNITS = 64
"""Large messages that are being sent take so much memory at most, also if nobody reads them."""
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class JobMessage:
    """A job, encoded.

    Attributes:
        over: Whether it has ended.
        pending: Whether it has not begun.
    """

    job: JobId
    data: bytes
    over: bool
    pending: bool = False


@dataclass(frozen=True, slots=True)
class _KeptMessage:
    made_s: float
    pause: Pause | None
    message: asyncio.Future[JobMessage | None] = field(default_factory=asyncio.Future)

    def holds(self, now_s: float) -> bool:
        """Whether the message is young enough, or is being made."""
        done = self.message.done() and self.message.exception() is None
        message = self.message.result() if done else None
        pending = message is not None and message.pending
        return now_s - self.made_s <= (_KEPT_PENDING_S if pending else _KEPT_S)


class JobMessages:
    """Makes messages of jobs, and keeps them until the job changes.

    Args:
        gateway: Has the newest model, and tells what changes.
        archive: Has ended jobs.
        clock: The time up to which costs are counted.
    """

    def __init__(self, gateway: LoopGateway, archive: Archive, clock: Clock) -> None:
        self._gateway = gateway
        self._archive = archive
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[JobId, _KeptMessage] = {}
        self._bytes = 0
        self._making: set[asyncio.Task[None]] = set()
        gateway.observe(self._changed)

    def _changed(self, changes: Changes) -> None:
        """Forget messages that are no longer true; in the control loop's thread."""
        with self._lock:
            for name in changes.of_jobs:
                self._kept.pop(name, None)

    async def all(self, names: Sequence[JobId]) -> AsyncIterator[JobMessage]:
        """The messages of jobs, of those that there are."""
        for some in _in_parts(names, await self._gateway.model()):
            for message in await self._some(some):
                yield message

    async def _some(self, names: Sequence[JobId]) -> list[JobMessage]:
        """The messages of a few jobs: those that are kept, and the rest made together."""
        now_s, pause = time.monotonic(), self._gateway.pause
        wanted: dict[JobId, _KeptMessage] = {}
        new: dict[JobId, _KeptMessage] = {}
        with self._lock:
            for name in names:
                kept = self._kept.get(name)
                if kept is None or kept.pause != pause or not kept.holds(now_s):
                    kept = self._kept[name] = new[name] = _KeptMessage(now_s, pause)
                wanted[name] = kept
        if new:
            # A task of its own: others may wait for it too when this caller goes away.
            making = asyncio.create_task(self._make(new, pause))
            self._making.add(making)
            making.add_done_callback(self._making.discard)
        messages = [await asyncio.shield(kept.message) for kept in wanted.values()]
        return [message for message in messages if message is not None]

    async def _make(self, new: dict[JobId, _KeptMessage], pause: Pause | None) -> None:
        try:
            encode = partial(self._encoded, list(new), self._clock.now(), pause)
            made = await self._gateway.read(encode)
        except Exception as error:
            self._forget(new)
            for kept in new.values():
                kept.message.set_exception(error)
                kept.message.exception()  # whoever waited may have gone
            return
        for name, kept in new.items():
            kept.message.set_result(made.get(name))
        self._bytes += sum(len(message.data) for message in made.values())
        if self._bytes > _KEPT_BYTES:
            with self._lock:
                self._kept.clear()
            self._bytes = 0

    def _forget(self, some: Mapping[JobId, _KeptMessage]) -> None:
        with self._lock:
            for name, kept in some.items():
                if self._kept.get(name) is kept:
                    del self._kept[name]

    def _encoded(
        self, names: Sequence[JobId], now: Millis, pause: Pause | None, model: ReadModel
    ) -> dict[JobId, JobMessage]:
        records = pages.jobs(model, self._archive, names, now)
        return {
            name: JobMessage(
                name,
                views.job(model, record, now, pause).SerializeToString(),
                record.job.state in TERMINAL_JOB,
                record.job.state is JobState.PENDING,
            )
            for name, record in records.items()
        }


def _in_parts(names: Sequence[JobId], model: ReadModel) -> Iterator[Sequence[JobId]]:
    """Split jobs into parts with few enough tasks."""
    part: list[JobId] = []
    tasks = 0
    for name in names:
        job = model.jobs.get(name)
        more = 1 if job is None else min(SMALL_JOB, len(job.spec.tasks))
        if part and (len(part) >= _JOBS_AT_ONCE or tasks + more > _TASKS_AT_ONCE):
            yield part
            part, tasks = [], 0
        part.append(name)
        tasks += more
    if part:
        yield part


class SendingRoom:
    """The memory that large messages take while they are being sent."""

    def __init__(self) -> None:
        self._all = _Units(_UNITS)
        self._users: dict[str, _Units] = {}

    @asynccontextmanager
    async def taken(self, owner: str, size: int) -> AsyncIterator[None]:
        """Wait until a message of some bytes may be sent to a user, and count it meanwhile.

        Raises:
            TooSlow: Other messages to the user are not read.
        """
        if size <= SMALL_BYTES:
            yield
            return
        units = min(_UNITS_PER_USER, -(-size // _UNIT_BYTES))
        # There are no more users than tokens.
        user = self._users.setdefault(owner, _Units(_UNITS_PER_USER))
        releases: list[Callable[[], None]] = []
        try:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    for room in (user, self._all):
                        releases.append(await room.take(units))
            except TimeoutError:
                who, most = (
                    ("others have", _UNITS) if releases else (f"{owner} has", _UNITS_PER_USER)
                )
                raise TooSlow(
                    f"{who} {most} MiB of messages that nobody reads",
                    hint="end the watches that do not read, and watch again",
                ) from None
            yield
        finally:
            for release in releases:
                release()


class _Units:
    """A number of units, taken in the order of asking."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._line = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, units: int) -> Callable[[], None]:
        """Wait for some units; returns what gives them back."""
        async with self._line:
            while self._free < units:
                self._freed.clear()
                await self._freed.wait()
            self._free -= units

        def release() -> None:
            self._free += units
            self._freed.set()

        return release
