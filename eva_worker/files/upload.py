"""Uploads a task's log, outputs and checkpoints while it runs and when it ends."""

from __future__ import annotations

import asyncio
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from ctypes import CDLL, c_int, c_int64, get_errno
from pathlib import Path
from typing import Any

import structlog

from eva_worker.errors import Missing, UnstorableName
from eva_worker.files.checkpoints import checkpoint_key, prune
from eva_worker.files.download import FileEntry, checkpoint_manifest, digest_of, together
from eva_worker.files.objects import Objects
from eva_worker.files.parts import PART
from eva_worker.orders import TaskKey
from eva_worker.process.durable_files import read_json, write_json

LOG_KEPT = 64 << 20
"""Bytes of a log that stay on the disk once they are stored, by default."""

_LOG_CHUNK = 4 << 20
_PARALLEL = 8
_MOST_COPIED = 5 << 30
"""Bytes that S3 copies in one request."""
# From linux/falloc.h; Python has no name for them.
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (c_int, c_int, c_int64, c_int64)

_log = structlog.get_logger()


class Uploader:
    """Uploads the log, the outputs and the checkpoints of one attempt.

    A document records what is stored, so that the next agent continues from there. A log chunk that
    was stored just before an agent died is replaced by one that begins at the same byte.

    Args:
        objects: The store.
        key: The attempt.
        gang: The other members of its gang.
        log: The task's log file.
        log_kept: How many bytes of it stay on the disk once they are stored.
        outputs: ``$EVA_STORAGE/outputs``; `None` if it need not be uploaded.
        checkpoints: ``$EVA_CHECKPOINT_DIR``.
        memory: Path of the document.
        steps_kept: Tells how many steps a generation holds.
        count: Called with the number of bytes of every upload.
    """

    def __init__(
        self,
        objects: Objects,
        key: TaskKey,
        *,
        gang: Sequence[str] = (),
        log: Path,
        log_kept: int = LOG_KEPT,
        outputs: Path | None,
        checkpoints: Path,
        memory: Path,
        steps_kept: Callable[[int], int],
        count: Callable[[int], None],
    ) -> None:
        self._objects = objects
        self._key = key
        self._gang = gang
        self._log_file = log
        self._log_kept = log_kept
        self._outputs = outputs
        self._checkpoints = checkpoints
        self._memory = memory
        self._steps_kept = steps_kept
        self._count = count
        saved: dict[str, Any] = read_json(memory) or {}
        self._log_offset = int(saved.get("log", 0))
        self._sent: dict[str, list[int]] = saved.get("outputs", {})
        self.generation = int(saved.get("generation", 0))
        self._origin = int(saved.get("origin", 0))
        self._common = int(saved.get("common", 0))
        # The generation that is being stored and those of its files that are; the last one stored.
        self._under_way = int(saved.get("under_way", 0))
        self._whole: dict[str, str] = saved.get("whole", {})
        self._last: dict[str, Any] = saved.get("last", {"generation": 0, "files": {}})
        self._parallel = asyncio.Semaphore(_PARALLEL)
        self._remembering = asyncio.Lock()
        self._log = structlog.get_logger().bind(run=key.run, attempt=key.attempt)

    async def began_from(self, generation: int) -> None:
        """Note the checkpoint that was restored: only newer ones are uploaded."""
        self.generation = self._origin = generation
        await self._remember()

    async def all(self) -> None:
        """Upload whatever is new.

        Raises:
            StoreUnavailable: The store failed. What was stored before stays.
        """
        await self.newest_checkpoint()
        await self.log()
        if self._outputs:
            await self._changed_outputs(self._outputs)

    async def newest_checkpoint(self) -> None:
        """Upload the newest generation if it is newer than what is stored.

        For a member of a gang, upload all newer ones, oldest first, since other members may not
        have the newest yet. The files go first and their list last: a generation without a list
        does not exist.
        """
        while generation := await asyncio.to_thread(self._next):
            try:
                await self._checkpoint(generation)
            except Missing:
                # The program has removed it meanwhile, in favour of a newer one.
                if await asyncio.to_thread(self._next) <= generation:
                    self._log.warning("checkpoint vanished", generation=generation)
                    return
            except UnstorableName as error:
                self._log.error("checkpoint cannot be stored", error=str(error))
                return
            else:
                self.generation = generation
                await self._remember()
                await self._prune()

    async def _checkpoint(self, generation: int) -> None:
        directory = self._checkpoints / f"{generation:08d}"
        prefix = checkpoint_key(self._key.run, generation)
        # An earlier attempt may have stored another generation of this number, if this attempt
        # resumed from an older one. The generation must not be half old, half new.
        await self._objects.delete(f"{prefix}/manifest.json")
        if self._under_way != generation:
            self._under_way, self._whole = generation, {}
            await self._remember()
        found = await asyncio.to_thread(lambda: list(_files(directory)))
        entries = await together(
            self._file(prefix, directory, path, status) for path, status in found
        )
        if not directory.is_dir():
            raise Missing(f"no such directory: {directory}")
        manifest = checkpoint_manifest(entries, self._steps_kept(generation))
        await self._objects.put(f"{prefix}/manifest.json", manifest)
        self._last = {"generation": generation, "files": {e.path: e.sha256 for e in entries}}
        self._under_way, self._whole = 0, {}

    async def _file(
        self, prefix: str, directory: Path, path: Path, status: os.stat_result
    ) -> FileEntry:
        """Store a file of a checkpoint unless it is stored; copy it if it has not changed.

        Raises:
            Missing: The file no longer exists.
        """
        name = path.relative_to(directory).as_posix()
        async with self._parallel:
            try:
                digest = await asyncio.to_thread(digest_of, path)
            except FileNotFoundError as error:
                raise Missing(f"no such file: {path}") from error
            key = f"{prefix}/files/{name}"
            if self._whole.get(name) != digest and not await self._copied(
                name, digest, status, key
            ):
                self._count(await self._objects.put(key, path))
            self._whole[name] = digest
            if status.st_size > PART:
                await self._remember()
        return FileEntry(name, stat.S_IMODE(status.st_mode), digest, status.st_size)

    async def _copied(self, name: str, digest: str, status: os.stat_result, key: str) -> bool:
        """Have the store copy a large file that the previous generation also has."""
        known = self._last["files"].get(name) == digest
        if not known or not PART < status.st_size <= _MOST_COPIED:
            return False
        source = f"{checkpoint_key(self._key.run, self._last['generation'])}/files/{name}"
        try:
            await self._objects.copy(source, key)
        except Missing:
            return False  # Removed meanwhile because no attempt will start from it.
        return True

    async def _prune(self) -> None:
        keep = {self._origin, self._common} if self._gang else ()
        self._common = await prune(self._objects, self._key.run, self._gang, keep)
        await self._remember()

    def _next(self) -> int:
        """The generation on disk that is to be stored next, 0 for none."""
        try:
            names = [entry.name for entry in self._checkpoints.iterdir() if entry.is_dir()]
        except FileNotFoundError:
            return 0
        numbers = [int(name) for name in names if name.isdecimal()]
        new = [number for number in numbers if number > self.generation]
        return (min if self._gang else max)(new, default=0)

    async def log(self) -> None:
        """Upload the new part of the log, and free the disk space of the old part."""
        prefix = f"jobs/{self._key.run}/logs/{self._key.attempt:04d}"
        while chunk := await asyncio.to_thread(read_at, self._log_file, self._log_offset):
            self._count(await self._objects.put(f"{prefix}/{self._log_offset:016d}", chunk))
            self._log_offset += len(chunk)
            await self._remember()
        if self._log_offset > self._log_kept:
            await asyncio.to_thread(
                forget_before, self._log_file, self._log_offset - self._log_kept
            )

    async def _changed_outputs(self, outputs: Path) -> None:
        found = await asyncio.to_thread(lambda: list(_files(outputs)))
        names = [path.relative_to(outputs).as_posix() for path, _ in found]
        await together(self._output(name, *it) for name, it in zip(names, found, strict=True))

    async def _output(self, name: str, path: Path, status: os.stat_result) -> None:
        seen = [status.st_size, status.st_mtime_ns, status.st_ino]
        if self._sent.get(name) == seen:
            return
        async with self._parallel:
            try:
                self._count(await self._objects.put(f"jobs/{self._key.run}/outputs/{name}", path))
            except Missing:
                return  # The program has removed it meanwhile.
            except UnstorableName as error:
                self._log.error("output cannot be stored", error=str(error))
            self._sent[name] = seen
            await self._remember()

    async def _remember(self) -> None:
        async with self._remembering:
            # Copies, since others change the originals while a thread writes these down.
            document = {
                "log": self._log_offset,
                "outputs": dict(self._sent),
                "generation": self.generation,
                "origin": self._origin,
                "common": self._common,
                "under_way": self._under_way,
                "whole": dict(self._whole),
                "last": self._last,
            }
            await asyncio.to_thread(write_json, self._memory, document, sync=False)


def read_at(path: Path, offset: int, length: int = _LOG_CHUNK) -> bytes:
    """Read part of a file, up to its end; empty if there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except FileNotFoundError:
        return b""


def forget_before(path: Path, offset: int) -> None:
    """Free the blocks of a file below an offset; the rest keeps its offsets.

    Where the file system cannot do that, the blocks stay.
    """
    with path.open("r+b") as file:
        # A part of a block would be zeroed without being freed.
        whole = offset - offset % max(mmap.PAGESIZE, os.fstat(file.fileno()).st_blksize)
        if whole and _libc.fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, 0, whole) != 0:
            _log.warning("log cannot be cut", path=str(path), error=os.strerror(get_errno()))


def first_kept(path: Path, offset: int) -> int:
    """The first offset, from a given one on, at which a file still has data."""
    try:
        with path.open("rb") as file:
            return os.lseek(file.fileno(), offset, os.SEEK_DATA)
    except OSError:  # There is no such file, it is empty, or the file system has no holes.
        return offset


def _files(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The regular files below a directory; links are not followed, not even to files."""
    for root, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = Path(root) / name
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status
