"""Files that tasks have stored, by names for users: outputs, checkpoints and logs.

A name begins with one of `TOPS`. Behind it lies an object of its own, a content that
the newest copy of plain files names by its digest, or the chunks of an attempt's log.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eva_master.adapters.objects.outputs import outputs_prefix
from eva_master.ports import ObjectStore, StoredObject
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import LimitExceeded, ObjectChanged
from eva_wire.values.ids import JobId, Millis, RunId, job_of, replica_of

OUTPUTS, CHECKPOINTS, LOGS = TOPS = ("outputs", "checkpoints", "logs")
"""First segments of names."""
MOST_LISTED = 1_000_000
"""Files of one listing."""
PIECE_BYTES = 512 * 1024
"""Bytes that are read, and sent, at a time."""
_AT_ONCE = 1_000
_MOST_LIST_BYTES = 64 << 20
_AHEAD = 16
_AHEAD_IN_ALL = 128
"""Pieces that are read ahead, for one client and for all."""
_PLAIN = "plain"
_CONTENT = "sha256:"
_RUN = re.compile(r"([0-9]{1,9})(?:\+([0-9]{1,9}))?")
_GENERATION = re.compile(r"[0-9]{8,16}")
_COPY = re.compile(r"([0-9]{8,16})-[0-9]{4,10}-[0-9]{1,7}-(?!idle\.)[a-z]+\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LOG = re.compile(r"([0-9]{4,10})\.log")
_DIGITS = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file that a task run has stored.

    Attributes:
        run: The task run.
        path: Its name.
        size: In bytes.
        modified_ms: When it was stored.
        version: Changes with the content; the attempt of a log, which only grows.
    """

    run: RunId
    path: str
    size: int
    modified_ms: Millis
    version: str


class Piece(NamedTuple):
    """Consecutive bytes of one of several files.

    Attributes:
        position: That of the file among those asked for.
        data: `None` if its version is gone, and with it the rest.
    """

    position: int
    offset: int
    data: bytes | None


class _Segment(NamedTuple):
    """Bytes of an object that are part of a file.

    Attributes:
        start: Where they begin in the object.
        at: Where they begin in the file.
    """

    key: str
    start: int
    at: int
    length: int


@dataclass(slots=True)
class _Run:
    """Objects of one task run, beside outputs.

    Attributes:
        generations: Files of each generation of checkpoints, by their names in it.
        complete: Generations whose manifest is there.
        copies: Keys of lists of plain files, by number.
        contents: Contents of plain files, by digest.
        chunks: Chunks of each attempt's log: offset and object.
    """

    generations: dict[str, list[tuple[str, StoredObject]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    complete: set[str] = field(default_factory=set)
    copies: dict[int, str] = field(default_factory=dict)
    contents: dict[str, StoredObject] = field(default_factory=dict)
    chunks: dict[str, list[tuple[int, StoredObject]]] = field(
        default_factory=lambda: defaultdict(list)
    )


async def listed(
    store: ObjectStore, job: JobId, runs: Sequence[RunId] | None, path: str
) -> AsyncGenerator[list[TaskFile]]:
    """List the files of task runs, in parts, in any order.

    Outputs are those of tasks' own runs: outputs of extra runs that count are copied there.
    Generations of checkpoints without a manifest are left out, and so are contents that the newest
    copy of plain files does not name.

    Args:
        store: The store.
        job: The job.
        runs: The task runs; `None` for all of the job.
        path: A file or a directory; empty for all.

    Raises:
        LimitExceeded: There are more than `MOST_LISTED`.
        StorageError: The store failed.
    """
    count = 0
    part: list[TaskFile] = []
    async for file in _all(store, job, runs, path):
        if path and file.path != path and not file.path.startswith(f"{path}/"):
            continue
        count += 1
        if count > MOST_LISTED:
            raise LimitExceeded(
                f"{job} has stored more than {MOST_LISTED:,} files",
                hint=f"name a task, as in {job}/0, or a directory",
            )
        part.append(file)
        if len(part) == _AT_ONCE:
            yield part
            part = []
    if part:
        yield part


async def _all(
    store: ObjectStore, job: JobId, runs: Sequence[RunId] | None, path: str
) -> AsyncIterator[TaskFile]:
    top = path.partition("/")[0]
    other: dict[RunId, _Run] = defaultdict(_Run)
    for prefix in [f"jobs/{job}"] if runs is None else _prefixes(runs, path):
        if prefix.endswith(f"/{path}") and path.startswith(f"{OUTPUTS}/"):
            # A prefix is a directory, and the name may be that of a file.
            single = await store.find(prefix)
            if single is not None and (file := _noted(single, job, top, other)) is not None:
                yield file
        async for batch in store.below(prefix):
            for stored in batch:
                if (file := _noted(stored, job, top, other)) is not None:
                    yield file
    for run, parts in other.items():
        for file in _of_generations(run, parts):
            yield file
        async for file in _of_copy(store, run, parts):
            yield file
        for attempt, chunks in parts.chunks.items():
            yield _of_log(run, attempt, chunks)


def _prefixes(runs: Iterable[RunId], path: str) -> Iterator[str]:
    top = path.partition("/")[0]
    for run in runs:
        if not top:
            yield f"jobs/{run}"
        elif top == OUTPUTS:
            if not replica_of(run):
                yield f"jobs/{run}/{path}"
        else:
            yield f"jobs/{run}/{top}"


def _noted(stored: StoredObject, job: JobId, top: str, other: dict[RunId, _Run]) -> TaskFile | None:
    """The file that an object is, if it is an output; other objects are noted down."""
    name, _, rest = stored.key.removeprefix(f"jobs/{job}/").partition("/")
    kind, _, below = rest.partition("/")
    if not _RUN.fullmatch(name) or not below or (top and kind != top):
        return None
    run = RunId(f"{job}/{name}")
    if kind == OUTPUTS:
        if replica_of(run):
            return None
        return TaskFile(run, rest, stored.size, stored.modified_ms, stored.version)
    if kind == LOGS:
        attempt, _, offset = below.partition("/")
        if _DIGITS.fullmatch(attempt) and _DIGITS.fullmatch(offset):
            other[run].chunks[attempt].append((int(offset), stored))
    elif kind == CHECKPOINTS:
        _note_checkpoint(stored, below, other[run])
    return None


def _note_checkpoint(stored: StoredObject, below: str, parts: _Run) -> None:
    place, _, rest = below.partition("/")
    inner, _, path = rest.partition("/")
    if place == _PLAIN:
        if inner == "files" and _DIGEST.fullmatch(path):
            parts.contents[path] = stored
        elif copy := _COPY.fullmatch(rest):
            parts.copies[int(copy[1])] = stored.key
    elif _GENERATION.fullmatch(place):
        if rest == "manifest.json":
            parts.complete.add(place)
        elif inner == "files" and path:
            parts.generations[place].append((path, stored))


def _of_generations(run: RunId, parts: _Run) -> Iterator[TaskFile]:
    for number in parts.complete:
        for path, stored in parts.generations[number]:
            name = f"{CHECKPOINTS}/{number}/{path}"
            yield TaskFile(run, name, stored.size, stored.modified_ms, stored.version)


async def _of_copy(store: ObjectStore, run: RunId, parts: _Run) -> AsyncIterator[TaskFile]:
    """The files of the newest copy of plain files."""
    if not parts.copies:
        return
    key = parts.copies[max(parts.copies)]
    stored = await store.find(key)
    if stored is None or not 0 < stored.size <= _MOST_LIST_BYTES:
        return
    try:
        files = json.loads(await store.piece(key, 0, stored.size, stored.version))["files"]
        entries = [(str(file["path"]), str(file["sha256"])) for file in files]
    except (ObjectChanged, ValueError, TypeError, KeyError, RecursionError):
        return  # The list is replaced at this moment, or is none of an agent's.
    for path, digest in entries:
        if (content := parts.contents.get(digest)) is not None:
            name = f"{CHECKPOINTS}/{_PLAIN}/{path}"
            version = f"{_CONTENT}{digest}"
            yield TaskFile(run, name, content.size, content.modified_ms, version)


def _of_log(run: RunId, attempt: str, chunks: list[tuple[int, StoredObject]]) -> TaskFile:
    size = sum(segment.length for segment in _joined(chunks))
    modified = max(stored.modified_ms for _, stored in chunks)
    return TaskFile(run, f"{LOGS}/{attempt}.log", size, modified, attempt)


def _joined(chunks: Iterable[tuple[int, StoredObject]]) -> Iterator[_Segment]:
    """The bytes of a log, each once: agents may have stored some twice."""
    position = at = 0
    for offset, stored in sorted(chunks, key=lambda chunk: chunk[0]):
        start = max(0, position - offset)
        if (length := stored.size - start) > 0:
            yield _Segment(stored.key, start, at, length)
            at += length
        position = max(position, offset + stored.size)


class ReadAhead:
    """Room for pieces that are read before their turn, for all readers together.

    Args:
        pieces: How many there may be.
    """

    def __init__(self, pieces: int = _AHEAD_IN_ALL) -> None:
        self._free = pieces

    def take(self) -> bool:
        """Take room for a piece if there is any."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        """Give back the room of a piece."""
        self._free += 1


class _Reading(NamedTuple):
    """A piece that is being read.

    Attributes:
        ahead: Whether it takes room of `ReadAhead`; the next one to be sent does not.
    """

    position: int
    offset: int
    data: asyncio.Task[bytes | None]
    ahead: bool


class FileReader:
    """Reads pieces of several files in order, some of them ahead, for one client.

    Args:
        store: The store.
        room: Shared by all readers.
    """

    def __init__(self, store: ObjectStore, room: ReadAhead) -> None:
        self._store = store
        self._room = room
        self._logs: dict[RunId, dict[str, list[_Segment]]] = {}
        self._gone: set[int] = set()

    async def read(self, wanted: Sequence[tuple[TaskFile, int]]) -> AsyncGenerator[Piece]:
        """The rest of each file.

        Args:
            wanted: Files of `listed`, each with the byte to begin with. Sizes are those of the
                listing, so that a log that has grown ends there.

        Raises:
            BadRequest: No listing has such a file.
            StorageError: The store failed.
        """
        pending = deque[_Reading]()
        try:
            async for position, segment, version in self._segments(wanted):
                while pending and (len(pending) >= _AHEAD or not self._room.take()):
                    async for piece in self._first(pending):
                        yield piece
                ahead = bool(pending)
                if position in self._gone:
                    if ahead:
                        self._room.give_back()
                    continue
                data = asyncio.create_task(self._data(segment, version))
                pending.append(_Reading(position, segment.at, data, ahead))
            while pending:
                async for piece in self._first(pending):
                    yield piece
        finally:
            for reading in pending:
                self._drop(reading)

    async def _first(self, pending: deque[_Reading]) -> AsyncIterator[Piece]:
        """The next piece to be sent, unless it is of a file that is gone."""
        reading = pending.popleft()
        try:
            if reading.position in self._gone:
                return
            data = await reading.data
            if data is None:
                self._gone.add(reading.position)
            yield Piece(reading.position, reading.offset, data)
        finally:
            self._drop(reading)

    def _drop(self, reading: _Reading) -> None:
        reading.data.cancel()
        if reading.ahead:
            self._room.give_back()

    async def _data(self, segment: _Segment, version: str) -> bytes | None:
        if not segment.length:
            return None
        try:
            return await self._store.piece(segment.key, segment.start, segment.length, version)
        except ObjectChanged:
            return None

    async def _segments(
        self, wanted: Sequence[tuple[TaskFile, int]]
    ) -> AsyncIterator[tuple[int, _Segment, str]]:
        """Bytes of each file that are to be read, by its position, a piece at most at a time."""
        for position, (file, offset) in enumerate(wanted):
            segments, version = await self._sources(file)
            end = offset
            for segment in segments:
                for piece in _cut(segment, offset, file.size):
                    if position in self._gone:  # Sizes are as clients state them.
                        break
                    yield position, piece, version
                    end = piece.at + piece.length
            if end < file.size and position not in self._gone:  # The rest of a log is gone.
                yield position, _Segment("", 0, end, 0), ""

    async def _sources(self, file: TaskFile) -> tuple[Sequence[_Segment], str]:
        """The objects that a file is made of, and the version that they must have."""
        top, _, below = file.path.partition("/")
        if top == LOGS and (log := _LOG.fullmatch(below)):
            logs = self._logs.get(file.run)
            if logs is None:
                logs = self._logs[file.run] = await self._segments_of_logs(file.run)
            return logs.get(log[1], ()), ""
        key, version = _object_of(file)
        return (_Segment(key, 0, 0, file.size),), version

    async def _segments_of_logs(self, run: RunId) -> dict[str, list[_Segment]]:
        parts = _Run()
        job = job_of(run)
        async for batch in self._store.below(f"jobs/{run}/{LOGS}"):
            for stored in batch:
                _noted(stored, job, LOGS, {run: parts})
        return {attempt: list(_joined(chunks)) for attempt, chunks in parts.chunks.items()}


def _cut(segment: _Segment, offset: int, size: int) -> Iterator[_Segment]:
    """A segment's share of a file's bytes from an offset to its size, in pieces."""
    first = max(offset, segment.at)
    last = min(size, segment.at + segment.length)
    for at in range(first, last, PIECE_BYTES):
        length = min(PIECE_BYTES, last - at)
        yield _Segment(segment.key, segment.start + at - segment.at, at, length)


def _object_of(file: TaskFile) -> tuple[str, str]:
    """Key and version of the object that holds a file.

    Raises:
        BadRequest: No listing has such a name.
    """
    top, _, below = file.path.partition("/")
    place, _, path = below.partition("/")
    if top == OUTPUTS and below and file.version:
        return f"{outputs_prefix(file.run)}/{below}", file.version
    if top == CHECKPOINTS and path:
        prefix = f"jobs/{file.run}/{CHECKPOINTS}"
        digest = file.version.removeprefix(_CONTENT)
        if place == _PLAIN and _DIGEST.fullmatch(digest):
            return f"{prefix}/{_PLAIN}/files/{digest}", ""  # Another content has another key.
        if _GENERATION.fullmatch(place) and file.version:
            return f"{prefix}/{place}/files/{path}", file.version
    raise BadRequest(f"no task stores a file named {file.path[:200]!r}")
