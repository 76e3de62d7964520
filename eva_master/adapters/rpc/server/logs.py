"""Reads a task's log from its first byte, wherever it is stored at the moment.

Logs are read from the object store, where workers upload them as they grow and when an attempt
ends, and while an attempt runs, or is being started, what is not there yet from its worker. A
worker keeps the end of a long log only; what it has not any more is in the store. The position is
kept as (attempt, offset in the attempt's log), so that bytes are neither repeated nor skipped when
the source changes. What a machine lost before it was uploaded is missing.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise

from eva_master.adapters.loop.gateway import LoopGateway, Watch
from eva_master.adapters.rpc.workers.sessions import WorkerSessions
from eva_master.model.errors import Unreachable
from eva_master.model.ids import InstanceId, RunId
from eva_master.model.job import JobKind
from eva_master.model.states import TERMINAL_JOB, TERMINAL_RUN, RunState
from eva_master.ports import ObjectStore
from eva_master.ports.reading import ReadModel

PIECE_BYTES = 64 * 1024
"""What is sent of a log at a time."""
_RUNS = (RunState.STARTING, RunState.RUNNING, RunState.STOPPING)
_RETRY_S = 2.0
"""A session that broke, or an attempt whose end is not reported yet, changes no record: look again
after this time."""
_NUMBER = re.compile(r"[0-9]{1,20}")
_LAST = "\U0010ffff"
"""After every key."""
_Chunk = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the log is at one moment.

    Attributes:
        attempt: The newest one.
        live: The instance that runs it, if its worker is connected.
        ended: The log will not grow any more.
    """

    attempt: int
    live: InstanceId | None
    ended: bool


class StoredLogs:
    """Lists what the store has of logs: for all who ask for one at the same time, once.

    Only the asyncio thread uses it.

    Args:
        store: The store, with objects ``jobs/RUN/logs/ATTEMPT/OFFSET``.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._next: dict[RunId, asyncio.Task[Sequence[_Chunk]]] = {}
        self._present: dict[RunId, asyncio.Task[Sequence[_Chunk]]] = {}

    async def chunks(self, run: RunId) -> Sequence[_Chunk]:
        """Attempt, offset and key of each object of a log, sorted, as of now or a moment later.

        Raises:
            StorageError: The store failed.
        """
        listing = self._next.get(run)
        if listing is None:
            # Whoever asks while one is under way shares the next one, which has all up to now.
            listing = asyncio.create_task(self._list(run, self._present.get(run)))
            # A failure is that of whoever still waits, if anybody does.
            listing.add_done_callback(lambda it: it.cancelled() or it.exception())
            self._next[run] = listing
        return await asyncio.shield(listing)

    async def _list(
        self, run: RunId, before: asyncio.Task[Sequence[_Chunk]] | None
    ) -> Sequence[_Chunk]:
        if before is not None:
            await asyncio.wait([before])
        listing = self._present[run] = self._next.pop(run)
        try:
            keys = await self._store.list(f"jobs/{run}/logs")
            return await asyncio.to_thread(lambda: sorted(filter(None, map(_chunk, keys))))
        finally:
            if self._present.get(run) is listing:
                del self._present[run]


class LogReader:
    """Reads the log of one task run, for one reader.

    Args:
        gateway: Knows where the task run is.
        sessions: The workers.
        store: Has the content of the log.
        logs: Lists what the store has.
        run: The task run whose log is read.
    """

    def __init__(
        self,
        gateway: LoopGateway,
        sessions: WorkerSessions,
        store: ObjectStore,
        logs: StoredLogs,
        run: RunId,
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._store = store
        self._logs = logs
        self._run = run
        self._attempt = 0
        self._offset = 0

    async def read(self, changes: Watch | None) -> AsyncIterator[bytes]:
        """The log from the beginning.

        Args:
            changes: A watch of the task run's job: follow the log until it grows no more. `None`
                ends with what there is.
        """
        while True:
            source = self._source(await self._gateway.model())
            async for data in self._stored():
                yield data
            if source.live is not None:
                async for data in self._live(source.live, source.attempt, once=changes is None):
                    yield data
            if changes is None or source.ended:
                return
            await _next_change(changes)

    def _source(self, model: ReadModel) -> _Source:
        run = model.runs.get(self._run)
        if run is None:  # it has been over for so long that only the store has its log
            return _Source(attempt=0, live=None, ended=True)
        job = model.jobs[run.job]
        # A settled member of a gang starts over when another member fails.
        settled = run.state in TERMINAL_RUN and job.spec.kind is not JobKind.GANG
        live = run.instance if run.state in _RUNS else None
        return _Source(
            attempt=run.attempt,
            live=live if live is not None and model.is_connected(live) else None,
            ended=settled or job.state in TERMINAL_JOB,
        )

    async def _live(
        self, instance: InstanceId, attempt: int, *, once: bool
    ) -> AsyncIterator[bytes]:
        if attempt != self._attempt:
            self._attempt, self._offset = attempt, 0
        try:
            async for piece in self._sessions.follow_log(
                instance, self._run, self._offset, once=once
            ):
                if piece.offset > self._offset:
                    # The worker has let go of what is stored: this reader is slower than the task.
                    async for data in self._stored():
                        yield data
                if fresh := piece.data[max(0, self._offset - piece.offset) :]:
                    self._offset = max(piece.offset, self._offset) + len(fresh)
                    yield fresh
        except Unreachable:
            # The next look finds it back, elsewhere, or in the store.
            return

    async def _stored(self) -> AsyncIterator[bytes]:
        """Read what the store has beyond the position."""
        chunks = await self._logs.chunks(self._run)
        # What is before the position is passed over at once, since there may be thousands.
        first = max(0, bisect_right(chunks, (self._attempt, self._offset, _LAST)) - 1)
        end = (0, 0, "")
        for (attempt, start, key), (next_attempt, next_start, _) in pairwise(
            chain(islice(chunks, first, None), (end,))
        ):
            if attempt < self._attempt:
                continue
            if attempt > self._attempt:
                self._attempt, self._offset = attempt, 0
            if next_attempt == attempt and next_start <= self._offset:
                continue
            # In parts: many readers hold one at a time each, however slowly they read.
            while data := await self._store.get(
                key, offset=max(0, self._offset - start), length=PIECE_BYTES
            ):
                self._offset = max(start, self._offset) + len(data)
                yield data


def _chunk(key: str) -> _Chunk | None:
    """The attempt and offset of an object, `None` if it is none of a log's."""
    *_, attempt, offset = key.split("/")
    if not (_NUMBER.fullmatch(attempt) and _NUMBER.fullmatch(offset)):
        return None
    return int(attempt), int(offset), key


async def _next_change(changes: Watch) -> None:
    try:
        async with asyncio.timeout(_RETRY_S):
            await anext(changes)
    except TimeoutError:
        return
