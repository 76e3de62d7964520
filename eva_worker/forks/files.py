"""The parts and merges of forks: from the task's directory to the object store, and back.

Whatever a task writes there is the task's to change at any moment, so it is opened by `beneath`
alone. A directory in the store exists as long as its manifest, which is written last. A merge is
named by the digest of its manifest: forks that merge one epoch after each other write to different
places, and only the merge that the master took is ever fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eva_worker.at_once import each
from eva_worker.errors import BadOrder, Corrupt, Missing, TransferFailed, UnstorableFile
from eva_worker.files.beneath import Directory, Found, remove_tree, require_own, vanishing
from eva_worker.files.download import MOST_LISTED, FileEntry, checkpoint_manifest, laid_out
from eva_worker.files.objects import Objects
from eva_worker.orders import MOST_STEPS, KeptPart, Part

MOST_EPOCH = 10**8 - 1
"""Epochs have eight digits in the names of directories."""
KINDS = ("given", "parts", "merged")
"""The directories in ``$EVA_MERGE_DIR``."""
MISSING = "missing.json"
_KEPT = 2
"""Epochs that stay in the store and on the disk."""
_LONGEST_NOTE = 1 << 20
"""Bytes of what a program says of its part or its merge."""
_MOST_FORKS = 64


@dataclass(frozen=True, slots=True)
class StoredMerge:
    """A merge that is in the store.

    Attributes:
        digest: Its name there: of the list of its files.
        kept: Result for each part.
        check_merged: Its figure; `None` if there is none, NaN if it is no finite number.
        check_best: That of the best part, likewise.
    """

    digest: str
    kept: tuple[KeptPart, ...]
    check_merged: float | None
    check_best: float | None


class MergeFiles:
    """The directories of one fork (``$EVA_MERGE_DIR``), and those of its job in the store.

    Args:
        objects: The store.
        job: Job of the forks.
        home: ``$EVA_MERGE_DIR``; nothing above it can be changed by the task.
    """

    def __init__(self, objects: Objects, job: str, home: Path) -> None:
        self._objects = objects
        self._root = f"jobs/{job}/merge"
        self._home = home

    def has(self, kind: str, epoch: int) -> bool:
        """Whether a directory is there; blocks."""
        try:
            with Directory.at(self._home) as home, home.directory(_name(kind, epoch)):
                return True
        except OSError:
            return False

    async def store_part(self, epoch: int, fork: int) -> tuple[int, str]:
        """Store the part that the program has given.

        Returns:
            How many steps it holds, and the digest of the list of its files.

        Raises:
            Missing, UnstorableFile: The part cannot be stored.
            StoreUnavailable: The store failed.
        """
        note = await asyncio.to_thread(self._note, _name("given", epoch), "part.json")
        steps = note.get("steps")
        if type(steps) is not int or not 0 <= steps <= MOST_STEPS:
            raise UnstorableFile("part.json has no number of steps")
        prefix = f"{self._root}/{epoch:08d}/parts/{fork}"
        return steps, await self._store(_name("given", epoch), prefix, steps)

    async def store_merge(self, epoch: int) -> StoredMerge:
        """Store the merge that the program has made; epochs that nobody needs any more go.

        Raises:
            Missing, UnstorableFile: The merge cannot be stored.
            StoreUnavailable: The store failed.
        """
        name = _name("merged", epoch)
        note = await asyncio.to_thread(self._note, name, "merged.json")
        kept = _kept(note.get("parts"))
        digest = await self._store(name, f"{self._root}/{epoch:08d}/merged", 0, named=True)
        await self._forget(epoch)
        merged, best = _figure(note.get("check_merged")), _figure(note.get("check_best"))
        return StoredMerge(digest, kept, merged, best)

    async def fetch_merge(self, epoch: int, digest: str) -> None:
        """Have a merge of an epoch in the task's directory, in the place of any other.

        Args:
            epoch: Which.
            digest: Its name; empty for the one that has none.

        Raises:
            Missing, Corrupt, StoreUnavailable, BadOrder: The download failed.
        """
        prefix = f"{self._root}/{epoch:08d}/merged" + (f"/{digest}" if digest else "")
        await self._fetch("merged", f"{epoch:08d}", [(prefix, "", digest)])

    async def fetch_parts(self, epoch: int, parts: Sequence[Part]) -> None:
        """Have the parts of an epoch in the task's directory; torn ones are named there instead.

        Raises:
            StoreUnavailable: The store failed.
        """
        prefix = f"{self._root}/{epoch:08d}/parts"
        wanted = [(f"{prefix}/{part.fork}", str(part.fork), part.digest) for part in parts]
        await self._fetch("parts", f"{epoch:08d}", wanted, lenient=True)

    async def _fetch(
        self, kind: str, name: str, wanted: Sequence[tuple[str, str, str]], *, lenient: bool = False
    ) -> None:
        """Fetch directories from the store into one that appears at once.

        Args:
            kind: Where it is to be.
            name: Its name.
            wanted: Key prefix, path below it and digest of the list of each.
            lenient: Whether those that are torn are left out, with the reason in a file.
        """
        missing: dict[str, str] = {}
        with await asyncio.to_thread(lambda: Directory.at(self._home / kind, make=True)) as above:
            aside = f".fetched-{name}"
            await asyncio.to_thread(remove_tree, above.place(aside))
            with above.directory(aside, make=True) as directory:
                for prefix, path, digest in wanted:
                    try:
                        await self._one(prefix, path, digest, directory)
                    except (Missing, Corrupt, BadOrder, UnstorableFile) as error:
                        if not lenient:
                            raise
                        missing[path] = str(error)[:200]
                        await asyncio.to_thread(remove_tree, directory.place(path))
                if missing:
                    _write(directory, MISSING, json.dumps(missing).encode())
                # By its descriptor: the task may have put a link in its place.
                os.fchmod(directory.fd, 0o755)  # the task reads it
            old = f".old-{name}"
            await asyncio.to_thread(remove_tree, above.place(old))
            for source, place in ((name, old), (aside, name)):
                with contextlib.suppress(OSError):
                    os.rename(source, place, src_dir_fd=above.fd, dst_dir_fd=above.fd)
            await asyncio.to_thread(remove_tree, above.place(old))
            await asyncio.to_thread(_remove_old, above, int(name))

    async def _one(self, prefix: str, path: str, digest: str, directory: Directory) -> None:
        listed = await self._objects.get(f"{prefix}/manifest.json")
        if len(listed) > MOST_LISTED:
            raise BadOrder("the list of its files is too long")
        if digest and hashlib.sha256(listed).hexdigest() != digest:
            raise Corrupt("its files are not those that were given")
        if not path:
            await laid_out(self._objects, prefix, listed, directory)
            return
        with directory.directory(path, make=True) as below:
            await laid_out(self._objects, prefix, listed, below)

    async def _store(self, name: str, prefix: str, steps: int, *, named: bool = False) -> str:
        """Store a directory of the task; returns the digest of the list of its files.

        Args:
            name: The directory.
            prefix: Where to.
            steps: How many it holds.
            named: Whether it is to lie below `prefix`, under that digest.
        """
        with vanishing(name), Directory.at(self._home) as home:
            directory = home.directory(name)
        with directory:
            files = await asyncio.to_thread(directory.files)
            listed = await each(files, lambda file: _listed(directory, file))
            manifest = checkpoint_manifest([entry for entry, _ in listed], steps)
            if len(manifest) > MOST_LISTED:
                raise UnstorableFile("the names of its files are too long together")
            digest = hashlib.sha256(manifest).hexdigest()
            if named:
                prefix = f"{prefix}/{digest}"
            else:
                await self._objects.delete(f"{prefix}/manifest.json")
            await each(listed, lambda it: self._file(prefix, directory, *it))
        await self._objects.put(f"{prefix}/manifest.json", manifest)
        return digest

    async def _file(
        self, prefix: str, directory: Directory, entry: FileEntry, changed_ns: int
    ) -> None:
        """Store a file that has not changed since it was listed."""
        with vanishing(entry.path):
            file = await asyncio.to_thread(directory.file, entry.path)
        with file:
            await self._objects.put(f"{prefix}/files/{entry.path}", file)
            after = os.fstat(file.fd)
            if (after.st_size, after.st_mtime_ns) != (entry.size, changed_ns):
                raise Missing(f"changed while it was stored: {entry.path[:200]}")

    def _note(self, name: str, file: str) -> dict[str, Any]:
        """The program's note about a directory; raises `Missing` or `UnstorableFile`."""
        with vanishing(name), Directory.at(self._home) as home:
            directory = home.directory(name)
        with directory, vanishing(file), directory.file(file) as opened:
            if opened.status.st_size > _LONGEST_NOTE:
                raise UnstorableFile(f"{file} has more than {_LONGEST_NOTE >> 20} MiB")
            data = opened.place.read_bytes()
        try:
            note = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise UnstorableFile(f"{file} is no JSON: {str(error)[:200]}") from error
        if not isinstance(note, dict):
            raise UnstorableFile(f"{file} is no JSON object")
        return note

    async def _forget(self, epoch: int) -> None:
        """Remove the epochs before the last ones from the store; it does not matter if it fails."""
        with contextlib.suppress(TransferFailed):
            async for key in self._objects.list(self._root):
                number = key.removeprefix(f"{self._root}/").partition("/")[0]
                if number.isdigit() and int(number) <= epoch - _KEPT:
                    await self._objects.delete(key)


async def _listed(directory: Directory, found: Found) -> tuple[FileEntry, int]:
    """The entry of a file in the list, and when the file was changed last."""
    with vanishing(found.path):
        file = await asyncio.to_thread(directory.file, found.path)
    with file:
        file.require_dense()
        require_own(file, directory)
        digest = await asyncio.to_thread(file.digest)
        status = file.status
        mode = stat.S_IMODE(status.st_mode) & 0o777
        return FileEntry(found.path, mode, digest, status.st_size), status.st_mtime_ns


def _name(kind: str, epoch: int) -> str:
    return f"{kind}/{epoch:08d}"


def _figure(value: object) -> float | None:
    """A program's figure; `None` if there is none, NaN if it is no finite number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _kept(parts: object) -> tuple[KeptPart, ...]:
    """A leader's account of the parts; raises `UnstorableFile`."""
    if not isinstance(parts, list) or len(parts) > _MOST_FORKS:
        raise UnstorableFile("merged.json has no list of parts")
    kept = []
    for part in parts:
        if not isinstance(part, dict) or type(fork := part.get("fork")) is not int:
            raise UnstorableFile("merged.json has a part without a fork")
        if not 0 <= fork < _MOST_FORKS:
            raise UnstorableFile("merged.json has a part of a fork that there is not")
        kept.append(KeptPart(fork, part.get("kept") is True, str(part.get("reason") or "")[:200]))
    return tuple(kept)


def _write(directory: Directory, name: str, data: bytes) -> None:
    with os.fdopen(directory.created(name, 0o644), "wb") as file:
        file.write(data)


def _remove_old(above: Directory, epoch: int) -> None:
    """Remove what was fetched of earlier epochs, and what is left of a fetch."""
    for name in above.names():
        number = name.removeprefix(".fetched-")
        if number.isdigit() and int(number) <= epoch - _KEPT:
            remove_tree(above.place(name))
