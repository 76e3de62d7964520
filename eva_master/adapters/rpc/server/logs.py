"""Reads a task's log from its first byte, wherever it is stored at the moment.

Logs are read from the object store, where workers upload them as they grow and when an attempt
ends; the part of a running or starting attempt that is not there yet comes from its worker. A
worker keeps the end of a long log only; the rest is in the store. The position is kept as (attempt,
offset in the attempt's log), so that bytes are neither repeated nor skipped when the source
changes. Bytes that a machine lost before their upload are missing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise

from eva_master.adapters.loop.gateway import LoopGateway, Watch
from eva_master.adapters.objects.task_logs import (
    MOST_TAIL_BYTES,
    LogPiece,
    Position,
    StoredLogs,
    last_lines,
)
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.workers.sessions import WorkerSessions
from eva_master.model.records import TaskRun
from eva_master.ports import ObjectStore
from eva_master.ports.reading import ReadModel
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import NotFound, Unreachable
from eva_wire.values.ids import InstanceId, Millis, RunId
from eva_wire.values.states import TERMINAL_JOB, TERMINAL_RUN, RunState

PIECE_BYTES = 64 * 1024
"""Size of a piece of a log."""
_RUNS = (RunState.STARTING, RunState.RUNNING, RunState.STOPPING)
_RETRY_S = 2.0
"""A session that broke, or an attempt whose end is not reported yet, changes no record: look again
after this time."""
_LAST = "\U0010ffff"
"""After every key."""


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


@dataclass(frozen=True, slots=True)
class LogExtent:
    """Part of a log that is wanted.

    Attributes:
        tail: So many last lines of what there is; `None` for all.
        since: Earliest time of stored output; output that is not stored yet is included. `None` for
            all.
        previous: Only the attempt before the newest one.
        start: Where to begin.
    """

    tail: int | None = None
    since: Millis | None = None
    previous: bool = False
    start: Position = (0, 0)


WHOLE = LogExtent()
"""All of a log."""


class LogReader:
    """Reads the log of one task run, for one reader.

    Args:
        gateway: Knows where the task run is.
        sessions: The workers.
        store: Has the content of the log.
        logs: Lists what the store has.
        run: The task run whose log is read.
        record: Record of the task run, if any.
    """

    def __init__(
        self,
        gateway: LoopGateway,
        sessions: WorkerSessions,
        store: ObjectStore,
        logs: StoredLogs,
        run: RunId,
        *,
        record: TaskRun | None = None,
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._store = store
        self._logs = logs
        self._run = run
        self._record = record
        self._attempt = 0
        self._offset = 0

    async def read(
        self, changes: Watch | None, extent: LogExtent = WHOLE
    ) -> AsyncIterator[LogPiece]:
        """The log, or a part of it.

        Args:
            changes: A watch of the task run's job: follow the log until it grows no more. `None`
                ends with what there is.
            extent: Part of the log that is wanted.

        Raises:
            NotFound: There is no attempt before.
            StorageError: The store failed.
        """
        if not extent.previous:
            self._attempt, self._offset = await self._start(extent)
        if extent.previous or changes is None or extent.tail is not None:
            pieces = self._previous() if extent.previous else self._present()
            async for piece in pieces if extent.tail is None else _last(pieces, extent.tail):
                yield piece
        while changes is not None and not extent.previous:
            source = self._source(await self._gateway.model())
            async for piece in self._stored():
                yield piece
            if source.live is not None:
                async for piece in self._live(source.live, source.attempt, once=False):
                    yield piece
            if source.ended:
                return
            await _next_change(changes)

    def about(self, attempt: int) -> pb.LogAttempt:
        """Facts on record of an attempt, and of the one before it."""
        message = pb.LogAttempt(number=attempt)
        if (run := self._record) is None:
            return message
        message.instance = dict(run.places).get(attempt, "")
        past = {earlier.number: earlier for earlier in run.past}
        if attempt in past:
            message.started_ms = past[attempt].started_ms
        elif attempt == run.attempt:
            message.started_ms = run.attempt_started_ms
        if before := [earlier for earlier in run.past if earlier.number < attempt]:
            message.ended_ms, message.ended = before[-1].ended_ms, before[-1].why
        return message

    async def _start(self, extent: LogExtent) -> Position:
        start = extent.start
        if extent.since is not None:
            start = max(start, await self._logs.since(self._run, extent.since))
        if extent.tail is not None:
            start = await self._logs.before_end(self._run, extent.tail, start)
        return start

    async def _present(self) -> AsyncIterator[LogPiece]:
        """Pieces that there are from the position on."""
        source = self._source(await self._gateway.model())
        async for piece in self._stored():
            yield piece
        if source.live is not None:
            async for piece in self._live(source.live, source.attempt, once=True):
                yield piece

    async def _previous(self) -> AsyncIterator[LogPiece]:
        """The attempt before the newest one."""
        chunks = await self._logs.chunks(self._run)
        newest = max([0 if self._record is None else self._record.attempt, *(c[0] for c in chunks)])
        before = max((number for number, _, _ in chunks if number < newest), default=None)
        if before is None:
            raise NotFound(
                f"{self._run} has no log of an attempt before the newest one",
                hint="leave out --previous",
            )
        self._attempt = before
        async for piece in self._stored():
            if piece.attempt != before:
                return
            yield piece

    def _source(self, model: ReadModel) -> _Source:
        run = model.runs.get(self._run)
        self._record = run or self._record
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
    ) -> AsyncIterator[LogPiece]:
        if attempt != self._attempt:
            self._attempt, self._offset = attempt, 0
        try:
            async for piece in self._sessions.follow_log(
                instance, self._run, self._offset, once=once
            ):
                if piece.offset > self._offset:
                    # The worker has let go of what is stored: this reader is slower than the task.
                    async for stored in self._stored():
                        yield stored
                if fresh := piece.data[max(0, self._offset - piece.offset) :]:
                    start = max(piece.offset, self._offset)
                    self._offset = start + len(fresh)
                    yield LogPiece(attempt, start, fresh)
        except Unreachable:
            # The next look finds it back, elsewhere, or in the store.
            return

    async def _stored(self) -> AsyncIterator[LogPiece]:
        """Read what the store has beyond the position."""
        chunks = await self._logs.chunks(self._run)
        # Chunks before the position are skipped at once, since there may be thousands.
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
                position = max(start, self._offset)
                self._offset = position + len(data)
                yield LogPiece(attempt, position, data)


async def _last(pieces: AsyncIterator[LogPiece], lines: int) -> AsyncIterator[LogPiece]:
    """The last lines of pieces, in bounded memory."""
    kept, size = deque[LogPiece](), 0
    async for piece in pieces:
        kept.append(piece)
        size += len(piece.data)
        while size > MOST_TAIL_BYTES and len(kept) > 1:
            size -= len(kept.popleft().data)
    for piece in last_lines(kept, lines):
        yield piece


async def _next_change(changes: Watch) -> None:
    try:
        async with asyncio.timeout(_RETRY_S):
            await anext(changes)
    except TimeoutError:
        return
