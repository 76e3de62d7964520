"""Uploads a task's log, outputs and checkpoints while it runs and when it ends.

All of these are the task's to change at any moment, so they are opened by `beneath` alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL, c_int, c_int64, get_errno
from pathlib import Path
from typing import Any, TypeVar

import structlog

from eva_worker.at_once import each
from eva_worker.errors import Missing, StoreUnavailable, UnstorableFile
from eva_worker.files.beneath import CHANGED, Directory, File, Found, require_own, vanishing
from eva_worker.files.checkpoints import MOST_GENERATION, checkpoint_key, generation_of, prune
from eva_worker.files.download import MOST_LISTED, FileEntry, checkpoint_manifest
from eva_worker.files.objects import Objects
from eva_worker.files.outputs.uploads import OutputUploads
from eva_worker.files.parts import PART
from eva_worker.files.plain.copies import How
from eva_worker.files.plain.uploads import NOTHING, Origin, PlainUploads
from eva_worker.orders import TaskKey
from eva_worker.process.durable_files import read_json, write_json

LOG_KEPT = 64 << 20
"""Bytes of a log that stay on the disk once they are stored, by default."""

_LOG_CHUNK = 4 << 20
_PARALLEL = 8
_READERS = 4
"""Threads that read the files of one attempt. They are its own, so that a file that takes long to
read holds up nobody else."""
_MOST_COPIED = 5 << 30
"""Bytes that S3 copies in one request."""
_MOST_NOTICES = 20
"""Lines about files that cannot be stored in the log of one attempt, for each agent."""
_LONGEST_NOTICE = 300
# From linux/falloc.h; Python has no name for them.
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_T = TypeVar("_T")

_libc = CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (c_int, c_int, c_int64, c_int64)

_log = structlog.get_logger()


class Uploader:
    """Uploads the log, the outputs and the checkpoints of one attempt.

    A document records what is stored, so that the next agent continues from there. A log chunk that
    was stored just before an agent died is replaced by one that begins at the same byte.

    A file that cannot be stored, whatever the store does, is left out, and the user is told.

    Args:
        objects: The store.
        key: The attempt.
        gang: The other members of its gang.
        home: The attempt's directory, which its task cannot replace, with the log file (``log``)
            and ``$EVA_CHECKPOINT_DIR`` (``checkpoints``).
        log_kept: How many bytes of the log stay on the disk once they are stored.
        outputs: ``$EVA_STORAGE/outputs`` below `home`; `None` if it need not be uploaded.
        memory: Path of the document.
        steps_kept: Tells how many steps a generation holds.
        steps: Tells how many steps the program has made.
        count: Called with the number of bytes of every upload.
        tell: Called, in any thread, with what the user should know.
    """

    def __init__(
        self,
        objects: Objects,
        key: TaskKey,
        *,
        gang: Sequence[str] = (),
        home: Path,
        log_kept: int = LOG_KEPT,
        outputs: str | None,
        memory: Path,
        steps_kept: Callable[[int], Awaitable[int]],
        steps: Callable[[], int] = lambda: 0,
        count: Callable[[int], None],
        tell: Callable[[str], None],
    ) -> None:
        self._objects = objects
        self._key = key
        self._gang = gang
        self._home = home
        self._log_kept = log_kept
        self._memory = memory
        self._steps_kept = steps_kept
        self._count = count
        self._tell = tell
        saved: dict[str, Any] = read_json(memory) or {}
        self._log_offset = int(saved.get("log", 0))
        self.generation = int(saved.get("generation", 0))
        if self.generation > MOST_GENERATION:  # An agent of an earlier version took any number.
            self.generation = 0
        self._origin = int(saved.get("origin", 0))
        self._common = int(saved.get("common", 0))
        # The generation that is being stored and those of its files that are; the last one stored.
        self._under_way = int(saved.get("under_way", 0))
        self._whole: dict[str, str] = saved.get("whole", {})
        self._last: dict[str, Any] = saved.get("last", {"generation": 0, "files": {}})
        self._refused: set[int] = set()
        self._notices: dict[str, None] = {}
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix=f"files of {key}")
        self._parallel = asyncio.Semaphore(_PARALLEL)
        self._remembering = asyncio.Lock()
        self._outputs: OutputUploads | None = None
        if outputs is not None:
            self._outputs = self._collector(outputs, saved.get("outputs", {}))
        self._plain = PlainUploads(
            objects,
            key,
            gang=gang,
            home=home,
            steps=steps,
            aside=self._aside,
            count=count,
            notice=self._notice,
            saved=saved.get("plain", {}),
        )
        self._log = structlog.get_logger().bind(run=key.run, attempt=key.attempt)

    def _collector(self, outputs: str, saved: dict[str, Any]) -> OutputUploads:
        return OutputUploads(
            self._objects,
            self._key.run,
            home=self._home,
            outputs=outputs,
            aside=self._aside,
            count=self._count,
            notice=self._notice,
            remember=self._remember,
            saved=saved,
        )

    def close(self) -> None:
        """Let go of its threads."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    @property
    def kept(self) -> int:
        """A number that grows with each checkpoint that is stored, 0 for none.

        The newest generation, or of a program that publishes none the newest copy of its plain
        files.
        """
        return self.generation or self._plain.kept

    @property
    def not_stored(self) -> str:
        """Notice to the user of what is not stored, in short; empty if there was none."""
        first = next(iter(self._notices), "")
        more = len(self._notices) - 1
        return f"{first[:_LONGEST_NOTICE]}; its log tells of {more} more" if more > 0 else first

    async def began_from(self, generation: int, plain: Origin = NOTHING) -> None:
        """Note the checkpoint that was restored: only newer ones are uploaded."""
        self.generation = self._origin = generation
        self._plain.began_from(plain)
        await self._remember()

    async def all(
        self, how: How | None = How.QUIET, goes_on: Callable[[], bool] = lambda: True
    ) -> None:
        """Upload whatever is new.

        Args:
            how: How a copy of plain files comes about now, `None` if there can be none: the
                program was killed, perhaps in the middle of a file.
            goes_on: Whether the program still runs.

        Raises:
            StoreUnavailable: The store failed. Files stored before stay.
        """
        await self.newest_checkpoint()
        if how is not None and await self._plain.store(how, goes_on):
            await self._remember()
        await self.log()
        if self._outputs is not None:
            await self._outputs.store(over=how not in {None, How.QUIET})

    async def newest_checkpoint(self) -> None:
        """Upload the newest generation if it is newer than what is stored.

        For a member of a gang, upload all newer ones, oldest first, since other members may not
        have the newest yet. The files go first and their list last: a generation without a list
        does not exist.
        """
        while generation := await self._aside(self._next):
            try:
                await self._checkpoint(generation)
            except Missing:
                # The program has removed it meanwhile, in favour of a newer one.
                if await self._aside(self._next) <= generation:
                    self._log.warning("checkpoint vanished", generation=generation)
                    return
            except UnstorableFile as error:
                self._refused.add(generation)
                self._notice(f"checkpoint {generation:08d} cannot be stored: {error}")
            else:
                self.generation = generation
                await self._remember()
                await self._prune()

    async def _checkpoint(self, generation: int) -> None:
        name = f"checkpoints/{generation:08d}"
        prefix = checkpoint_key(self._key.run, generation)
        with self._opened(name) as directory:
            began = os.fstat(directory.fd)
            files = await self._aside(directory.files)
            # An earlier attempt may have stored another generation of this number, if this attempt
            # resumed from an older one. The generation must not be half old, half new.
            await self._objects.delete(f"{prefix}/manifest.json")
            if self._under_way != generation:
                self._under_way, self._whole = generation, {}
                await self._remember()
            entries = await each(files, lambda file: self._file(prefix, directory, file))
        with self._opened(name) as directory:
            ended = os.fstat(directory.fd)
        if (began.st_dev, began.st_ino) != (ended.st_dev, ended.st_ino):
            raise Missing(f"replaced while it was stored: {name}")
        manifest = checkpoint_manifest(entries, await self._steps_kept(generation))
        if len(manifest) > MOST_LISTED:
            raise UnstorableFile("the names of its files are too long together")
        await self._objects.put(f"{prefix}/manifest.json", manifest)
        self._last = {"generation": generation, "files": {e.path: e.sha256 for e in entries}}
        self._under_way, self._whole = 0, {}

    async def _file(self, prefix: str, directory: Directory, found: Found) -> FileEntry:
        """Store a file of a checkpoint unless it is stored; copy it if it has not changed.

        Raises:
            Missing: The file no longer exists.
            UnstorableFile: The file cannot be stored.
        """
        name = found.path
        async with self._file_of(directory, name) as file:
            size = file.status.st_size
            digest = await self._aside(file.digest)
            key = f"{prefix}/files/{name}"
            if self._whole.get(name) != digest and not await self._copied(name, digest, size, key):
                self._count(await self._objects.put(key, file))
            after = os.fstat(file.fd)
            if (after.st_size, after.st_mtime_ns) != (size, file.status.st_mtime_ns):
                raise Missing(f"changed while it was stored: {name}")
            self._whole[name] = digest
            if size > PART:
                await self._remember()
            return FileEntry(name, stat.S_IMODE(file.status.st_mode) & 0o777, digest, size)

    @contextlib.asynccontextmanager
    async def _file_of(self, directory: Directory, name: str) -> AsyncIterator[File]:
        """Open a file of the task, a limited number at a time.

        Raises:
            Missing: The file no longer exists, or something else is in its place.
            UnstorableFile: The file cannot be stored.
        """
        async with self._parallel:
            try:
                with vanishing(name):
                    file = await self._aside(lambda: directory.file(name))
                with file:
                    file.require_dense()
                    require_own(file, directory)
                    yield file
            except UnstorableFile as error:
                raise UnstorableFile(f"{name[:200]!r}: {error}") from error

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[Directory]:
        """Open a directory of the task; raises `Missing` if there is none."""
        with vanishing(name), Directory.at(self._home) as home:
            directory = home.directory(name)
        with directory:
            yield directory

    async def _copied(self, name: str, digest: str, size: int, key: str) -> bool:
        """Have the store copy a large file that the previous generation also has."""
        unchanged = self._last["files"].get(name) == digest
        if not unchanged or not PART < size <= _MOST_COPIED:
            return False
        source = f"{checkpoint_key(self._key.run, self._last['generation'])}/files/{name}"
        try:
            await self._objects.copy(source, key)
        except Missing:
            return False  # Removed meanwhile because no attempt will start from it.
        except StoreUnavailable as error:
            # A copy that takes too long would take as long the next time.
            self._log.warning("stored again rather than copied", name=name, error=str(error))
            return False
        return True

    async def _prune(self) -> None:
        keep = {self._origin, self._common} if self._gang else ()
        self._common = await prune(self._objects, self._key.run, self._gang, keep)
        await self._remember()

    def _next(self) -> int:
        """The generation on disk that is to be stored next, 0 for none."""
        try:
            with self._opened("checkpoints") as directory:
                names = [
                    name
                    for name in directory.names()
                    if name.isdigit() and stat.S_ISDIR(_mode_of(directory, name))
                ]
        except (Missing, UnstorableFile):
            return 0
        numbers = [number for name in names if (number := generation_of(name)) is not None]
        new = [
            number for number in numbers if number > self.generation and number not in self._refused
        ]
        return (min if self._gang else max)(new, default=0)

    async def log(self) -> None:
        """Upload the new part of the log, and free the disk space of the old part."""
        prefix = f"jobs/{self._key.run}/logs/{self._key.attempt:04d}"
        while True:
            start, chunk = await self._aside(self._log_chunk)
            if not chunk:
                break
            self._count(await self._objects.put(f"{prefix}/{start:016d}", chunk))
            self._log_offset = start + len(chunk)
            await self._remember()
        if self._log_offset > self._log_kept:
            await self._aside(
                lambda: forget_before(self._home / "log", self._log_offset - self._log_kept)
            )

    def _log_chunk(self) -> tuple[int, bytes]:
        return read_data(self._home / "log", self._log_offset)

    def _notice(self, line: str) -> None:
        """Tell the user of something that is not stored, once."""
        if line in self._notices or len(self._notices) >= _MOST_NOTICES:
            return
        self._notices[line] = None
        self._log.warning("not stored", reason=line)
        if len(self._notices) == _MOST_NOTICES:
            line = f"{line} (there may be more that is not told)"
        self._tell(f"eva: {line}")

    async def _aside(self, what: Callable[[], _T]) -> _T:
        """Run what reads the task's files in a thread of this attempt."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, what)

    async def _remember(self) -> None:
        async with self._remembering:
            # Copies, since others change the originals while a thread writes these down.
            document = {
                "log": self._log_offset,
                "outputs": {} if self._outputs is None else dict(self._outputs.sent),
                "generation": self.generation,
                "origin": self._origin,
                "common": self._common,
                "under_way": self._under_way,
                "whole": dict(self._whole),
                "last": self._last,
                "plain": self._plain.remembered(),
            }
            await asyncio.to_thread(write_json, self._memory, document, sync=False)


def _mode_of(directory: Directory, name: str) -> int:
    try:
        return os.stat(name, dir_fd=directory.fd, follow_symlinks=False).st_mode
    except OSError:
        return 0


def read_data(path: Path, offset: int, length: int = _LOG_CHUNK) -> tuple[int, bytes]:
    """Read the next data of a task's log; holes are skipped.

    Returns:
        Where the data begin, and the data; none at the end, and if there is no such file.
    """
    try:
        with Directory.at(path.parent) as directory, directory.file(path.name) as file:
            return file.data_at(offset, length)
    except OSError as error:
        if error.errno not in CHANGED:
            raise
        return offset, b""


def append_line(path: Path, line: str) -> None:
    """Append a line to a task's log; raises `OSError`."""
    with Directory.at(path.parent) as directory:
        descriptor = directory.appended(path.name)
    try:
        os.write(descriptor, f"{line}\n".encode(errors="replace"))
    finally:
        os.close(descriptor)


def forget_before(path: Path, offset: int) -> None:
    """Free the blocks of a file below an offset; the rest keeps its offsets.

    Where the file system cannot do that, the blocks stay.
    """
    try:
        with Directory.at(path.parent) as directory:
            descriptor = directory.writable(path.name)
    except OSError as error:
        _log.warning("log cannot be cut", path=str(path), error=str(error))
        return
    try:
        # A part of a block would be zeroed without being freed.
        whole = offset - offset % max(mmap.PAGESIZE, os.fstat(descriptor).st_blksize)
        if whole and _libc.fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, whole) != 0:
            _log.warning("log cannot be cut", path=str(path), error=os.strerror(get_errno()))
    finally:
        os.close(descriptor)
