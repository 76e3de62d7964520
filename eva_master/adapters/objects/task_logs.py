"""Listings of the logs of tasks in the object store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass

from eva_master.ports import ObjectStore
from eva_wire.values.ids import Millis, RunId

_NUMBER = re.compile(r"[0-9]{1,20}")
_MOST_CHUNKS_BACK = 1_000
"""Objects of a log that are looked at from its end."""
_PIECE_BYTES = 64 * 1024
MOST_TAIL_BYTES = 4 * 1024 * 1024
"""The longest end of a log that is counted in lines."""
Chunk = tuple[int, int, str]
"""Attempt, offset and key of an object of a log."""
Position = tuple[int, int]
"""An attempt, and an offset in its log."""


class StoredLogs:
    """Lists what the store has of logs: for all who ask for one at the same time, once.

    Only the asyncio thread uses it.

    Args:
        store: The store, with objects ``jobs/RUN/logs/ATTEMPT/OFFSET``.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._next: dict[RunId, asyncio.Task[Sequence[Chunk]]] = {}
        self._present: dict[RunId, asyncio.Task[Sequence[Chunk]]] = {}

    async def chunks(self, run: RunId) -> Sequence[Chunk]:
        """Attempt, offset and key of each object of a log, sorted, as of now or a moment later.

        Raises:
            StorageError: The store failed.
        """
        listing = self._next.get(run)
        if listing is None:
            # A caller that asks while one is under way shares the next, which has all up to now.
            listing = asyncio.create_task(self._list(run, self._present.get(run)))
            # A failure is that of whoever still waits, if anybody does.
            listing.add_done_callback(lambda it: it.cancelled() or it.exception())
            self._next[run] = listing
        return await asyncio.shield(listing)

    async def _list(
        self, run: RunId, before: asyncio.Task[Sequence[Chunk]] | None
    ) -> Sequence[Chunk]:
        if before is not None:
            await asyncio.wait([before])
        listing = self._present[run] = self._next.pop(run)
        try:
            keys = await self._store.list(_prefix(run))
            return await asyncio.to_thread(lambda: sorted(filter(None, map(_chunk, keys))))
        finally:
            if self._present.get(run) is listing:
                del self._present[run]

    async def since(self, run: RunId, then: Millis) -> Position:
        """Where the first object begins that was stored since a time; else where the log ends.

        Raises:
            StorageError: The store failed.
        """
        chunks = await self.chunks(run)
        times = await self._store.modified(_prefix(run))
        for attempt, offset, key in chunks:
            if times.get(key, then) >= then:
                return attempt, offset
        return await self._end(chunks)

    async def before_end(self, run: RunId, lines: int, start: Position) -> Position:
        """A position with at least so many lines between it and the end of what is stored.

        Fewer lines if the log, from a position on, has no more of them, or if they are longer than
        `MOST_TAIL_BYTES`.

        Raises:
            StorageError: The store failed.
        """
        chunks = [chunk for chunk in await self.chunks(run) if chunk[:2] >= start]
        if not chunks:
            return start
        wanted, room = lines + 1, MOST_TAIL_BYTES
        attempt, end = await self._end(chunks)
        for number, offset, key in chunks[: -_MOST_CHUNKS_BACK - 1 : -1]:
            if number != attempt:
                attempt, end = number, offset + (await self._store.size(key) or 0)
            while end > offset:
                length = min(_PIECE_BYTES, end - offset)
                data = await self._store.get(key, offset=end - length - offset, length=length)
                end, room, wanted = end - length, room - length, wanted - data.count(b"\n")
                if wanted <= 0 or room <= 0:
                    return attempt, end
        return chunks[max(0, len(chunks) - _MOST_CHUNKS_BACK)][:2]

    async def _end(self, chunks: Sequence[Chunk]) -> Position:
        if not chunks:
            return 0, 0
        attempt, offset, key = chunks[-1]
        return attempt, offset + (await self._store.size(key) or 0)


def _prefix(run: RunId) -> str:
    return f"jobs/{run}/logs"


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Consecutive bytes of an attempt's log, from `offset` on."""

    attempt: int
    offset: int
    data: bytes


def last_lines(pieces: Sequence[LogPiece], lines: int) -> list[LogPiece]:
    """The last so many lines of consecutive pieces; a line that has no end yet counts as one."""
    kept: list[LogPiece] = []
    wanted = lines + (not pieces or pieces[-1].data[-1:] == b"\n")
    for piece in reversed(pieces):
        ends = piece.data.count(b"\n")
        if ends < wanted:
            wanted -= ends
            kept.append(piece)
            continue
        start = len(piece.data)
        for _ in range(wanted):
            start = piece.data.rindex(b"\n", 0, start)
        if rest := piece.data[start + 1 :]:
            kept.append(LogPiece(piece.attempt, piece.offset + start + 1, rest))
        break
    return kept[::-1] if lines else []


def _chunk(key: str) -> Chunk | None:
    """The attempt and offset of an object, `None` if it is none of a log's."""
    *_, attempt, offset = key.split("/")
    if not (_NUMBER.fullmatch(attempt) and _NUMBER.fullmatch(offset)):
        return None
    return int(attempt), int(offset), key
