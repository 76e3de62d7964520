"""Downloads the files that a task needs before it starts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from weakref import WeakValueDictionary

from eva_worker.at_once import each
from eva_worker.errors import BadOrder, Corrupt, Forbidden, InputRefused, Missing, UnsupportedInput
from eva_worker.files.beneath import MOST_DEPTH, Directory, DirectoryEntry, File, relative
from eva_worker.files.checkpoints import checkpoint_key, newest
from eva_worker.files.inputs import Copier, Roots
from eva_worker.files.objects import Objects
from eva_worker.files.parts import is_part
from eva_worker.files.room import require_room
from eva_worker.orders import MOST_STEPS

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOB = re.compile(r"(?:(?P<owner>[A-Za-z0-9._@-]{1,63})/)?(?P<digest>[0-9a-f]{64})")
_READERS = 64
"""Threads that read and write whole files: many, so that large ones hold up no other task."""
MOST_LISTED = 64 << 20
"""Bytes of a file list, which users and tasks make."""
_MOST_FILES = 300_000
"""Files in it."""
_VALUES_OF_A_FILE = 6
"""Braces and commas that an entry of such a list has, at most."""
_MOST_SIZE = 1 << 50
"""Bytes of a file in it."""
_LONGEST_PATH = 4_096
"""Bytes of a path in it: what Linux takes in one call."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a working directory or a checkpoint.

    Attributes:
        path: Relative, with slashes.
        mode: Permission bits.
        sha256: Of its content, in hex.
        size: In bytes.
    """

    path: str
    mode: int
    sha256: str
    size: int


def checkpoint_manifest(files: Iterable[FileEntry], steps: int) -> bytes:
    """The file list of a checkpoint generation, which also says how many steps it holds."""
    listed = [
        {"mode": file.mode, "path": file.path, "sha256": file.sha256, "size": file.size}
        for file in sorted(files, key=lambda file: file.path)
    ]
    document = {"files": listed, "steps": steps}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _require_list(size: int) -> None:
    if size > MOST_LISTED:
        raise BadOrder(f"a list of files of more than {MOST_LISTED >> 20} MiB")


def read_manifest(data: bytes) -> list[FileEntry]:
    """Read a file list.

    Raises:
        BadOrder: The data is no file list, too long, or a path in it leaves the directory.
    """
    _require_list(len(data))
    # Values of JSON take many times the memory of their text.
    if sum(map(data.count, (b"{", b"[", b","))) > _VALUES_OF_A_FILE * _MOST_FILES:
        raise BadOrder(f"a list of more than {_MOST_FILES} files")
    try:
        files = json.loads(data)["files"]
        if not isinstance(files, list):
            raise TypeError("`files` is not a list")
        entries = [_entry(file) for file in files]
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise BadOrder(f"not a list of files: {error!a}"[:500]) from error
    _require_own_places(entries)
    for entry in entries:
        if not relative(entry.path) or "\0" in entry.path:
            raise BadOrder(f"file outside its directory: {entry.path[:200]!r}")
        if len(entry.path.encode()) > _LONGEST_PATH or entry.path.count("/") >= MOST_DEPTH:
            raise BadOrder(f"path too long or too deep: {entry.path[:200]!r}")
        if not _DIGEST.fullmatch(entry.sha256):
            raise BadOrder(f"not a file: {entry.path[:200]!r} {entry.sha256[:80]!r}")
    return entries


def _entry(value: Any) -> FileEntry:
    """An entry of a list; raises `BadOrder`, or what a value of another kind raises."""
    path, mode, digest, size = (value[name] for name in ("path", "mode", "sha256", "size"))
    if not isinstance(path, str) or not isinstance(digest, str):
        raise BadOrder(f"path and sha256 are not text: {ascii(path)[:200]}")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise BadOrder(f"a path is not Unicode text: {ascii(path)[:200]}") from error
    if type(mode) is not int or type(size) is not int or mode < 0 or not 0 <= size <= _MOST_SIZE:
        raise BadOrder(f"mode or size is no whole number that a file has: {path[:200]!r}")
    return FileEntry(path, mode & 0o777, digest, size)


def _require_own_places(entries: Iterable[FileEntry]) -> None:
    """Require that no file is in the place of another one, or of the directory of one."""
    paths: set[str] = set()
    for entry in entries:
        if entry.path in paths:
            raise BadOrder(f"a file that is listed twice: {entry.path[:200]!r}")
        paths.add(entry.path)
    for path in paths:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in paths:
                raise BadOrder(f"a file that is a directory as well: {above[:200]!r}")


def _steps_held(manifest: bytes) -> int:
    steps = json.loads(manifest).get("steps", 0)
    return steps if isinstance(steps, int) and 0 <= steps <= MOST_STEPS else 0


class Fetcher:
    """Downloads files to the instance.

    Args:
        objects: The store that they come from.
        cache: Directory for blobs, shared by all tasks of the instance.
        roots: Where inputs may come from; nowhere if not given.
        private: Directories that no input may come from.
        hidden: Directories that inputs may not come from, unless their root lies in one.
    """

    def __init__(
        self,
        objects: Objects,
        cache: Path,
        roots: Roots | None = None,
        private: Collection[Path] = (),
        hidden: Collection[Path] = (),
    ) -> None:
        self._objects = objects
        self._cache = cache
        self._roots = roots or Roots((), objects.url)
        self._copier = Copier(self._roots, private, hidden)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="downloads")
        self._fetching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def prefetch(self, manifest: str) -> list[FileEntry]:
        """Download a working directory's files into the cache; returns their list.

        Raises:
            Missing, Corrupt, StoreUnavailable, BadOrder: The download failed.
            TooLarge, InstanceFailed: The disk has no room for them.
        """
        if not manifest:
            return []
        path = await self._blob(manifest, admit=_require_list)
        entries = await self._read(lambda: read_manifest(path.read_bytes()))
        sizes = {_beside(manifest, entry.sha256): entry.size for entry in entries}
        await each(sizes.items(), lambda blob: self._blob(*blob))
        return entries

    async def workdir(self, manifest: str, target: Path) -> None:
        """Lay out a working directory.

        Files are copied, not linked, since a task may write to its own.

        Args:
            manifest: Digest of its manifest, empty for an empty directory.
            target: Made if need be; files that are there are overwritten.

        Raises:
            Missing, Corrupt, StoreUnavailable, BadOrder: As for `prefetch`.
            TooLarge, InstanceFailed: The disk has no room for them.
        """
        entries = await self.prefetch(manifest)
        await self._read(lambda: self._lay_out(manifest, entries, target))

    async def inputs(self, inputs: Mapping[str, str], target: Path) -> None:
        """Copy a task's inputs, each to ``target/NAME``, read-only.

        Raises:
            UnsupportedInput: The operator does not allow one, or a name is not a file name.
            TooLarge, InstanceFailed: The disk has no room for them.
            Missing: There is nothing at a URL.
            StoreUnavailable: S3 failed. Files that have arrived are kept for the next try.
        """
        directory = await asyncio.to_thread(lambda: Directory.at(target, make=True))
        for name, url in sorted(inputs.items()):
            if name in {"", ".", ".."} or "/" in name:
                raise UnsupportedInput(f"input {name!r}: not a file name")
            _, place = self._roots.place(url)
            if place.scheme == "s3":
                await self._stored_input(url, directory, name)
            else:
                await asyncio.get_running_loop().run_in_executor(
                    self._copier.threads, self._copier.copy, url, directory, name
                )

    async def _stored_input(self, url: str, target: Directory, name: str) -> None:
        """Download an object, or all objects below a prefix."""
        parts = urlsplit(url)
        store = self._objects.elsewhere(urlunsplit(parts._replace(path="")))
        key = unquote(parts.path).strip("/")
        size = None
        if key and not parts.path.endswith("/"):
            # S3 denies knowledge of an object that is not there to those who may not list.
            with contextlib.suppress(Forbidden):
                size = await store.size(key)
        if size is not None:
            wanted = [(key, size, name)]
        else:
            try:
                listed = [entry async for entry in store.sizes(key)]
            except Forbidden as error:
                raise InputRefused(
                    f"input {url}: this instance's role may not read it; allow s3:GetObject on it, "
                    f"and s3:ListBucket on the bucket for more than one object ({error})"
                ) from error
            wanted = [
                (path, size, f"{name}/{path.removeprefix(key).lstrip('/')}")
                for path, size in listed
            ]
        if not wanted:
            raise Missing(f"no such input: {url}")
        sizes = [(path, size) for _, size, path in wanted]
        await self._read(lambda: require_room_for(target, sizes))
        await each(wanted, lambda one: fetch_read_only(store, target, *one))

    async def checkpoint(self, run: str, wanted: int | None, target: Path) -> tuple[int, int]:
        """Restore a checkpoint generation.

        Args:
            run: The task run whose checkpoint it is.
            wanted: Its number, 0 for none; `None` for the newest complete one, if any.
            target: ``$EVA_CHECKPOINT_DIR``. The generation appears in it atomically.

        Returns:
            The generation restored, 0 for none, and how many steps it holds.

        Raises:
            Missing: The wanted generation is not stored.
            Corrupt, StoreUnavailable, BadOrder: The download failed.
        """
        directory = await asyncio.to_thread(lambda: Directory.at(target, make=True))
        generation = await newest(self._objects, run) if wanted is None else wanted
        if generation == 0:
            return 0, 0
        prefix = checkpoint_key(run, generation)
        manifest = await self._objects.get(f"{prefix}/manifest.json")
        entries, steps = read_manifest(manifest), _steps_held(manifest)
        name = f"{generation:08d}"
        if name in directory.names():
            return generation, steps
        unfinished = f".tmp-restore-{name}"
        aside = await asyncio.to_thread(lambda: directory.directory(unfinished, make=True))
        # Files that an earlier try has downloaded are kept if they are in this list and complete.
        paths = {entry.path for entry in entries}
        await asyncio.to_thread(_remove_others, aside, paths, keep=is_part)
        await each(entries, lambda e: self._restore(f"{prefix}/files/{e.path}", e, aside))
        await asyncio.to_thread(_remove_others, aside, paths)
        os.rename(unfinished, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
        return generation, steps

    async def _restore(self, key: str, entry: FileEntry, directory: Directory) -> None:
        place = await asyncio.to_thread(_place, directory, entry.path)
        if not await self._read(lambda: _is_whole(place, entry)):
            await self._objects.fetch(key, place, size=entry.size)
            await self._read(lambda: _verify(place, entry.sha256))
        _change_mode(place, entry.mode)

    async def _blob(
        self, name: str, size: int = 0, admit: Callable[[int], None] = lambda _: None
    ) -> Path:
        """The file of a blob, by its owner and digest; those of early masters have no owner."""
        match = _BLOB.fullmatch(name)
        if match is None or match["owner"] in (".", ".."):
            raise BadOrder(f"not a digest: {name!r}")
        digest, root = match["digest"], f"uploads/{match['owner']}" if match["owner"] else "blobs"
        path = self._cached(name)
        # One task at a time downloads a blob, under the same name each time until it is verified,
        # so that a later try continues where an earlier one stopped.
        async with self._fetching.setdefault(name, asyncio.Lock()):
            if not path.exists():
                directory = Directory.at(path.parent, make=True)
                aside = DirectoryEntry(directory, f".unverified-{digest}")

                def admitted(size: int) -> None:
                    admit(size)
                    require_room(directory, size)

                key = f"{root}/{digest[:2]}/{digest}"
                await self._objects.fetch(key, aside, size=size, admit=admitted)
                try:
                    await self._read(lambda: _verify(aside, digest))
                    aside.path.replace(path)
                finally:
                    aside.path.unlink(missing_ok=True)
        return path

    async def _read(self, what: Callable[[], _T]) -> _T:
        """Run what reads whole files in a thread that nobody else waits for."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, what)

    def _cached(self, name: str) -> Path:
        owner, _, digest = name.rpartition("/")
        # Files that one user has uploaded are nothing that another one's list may name.
        return self._cache / (f"of-{owner}" if owner else "") / digest[:2] / digest

    def _lay_out(self, manifest: str, entries: Collection[FileEntry], target: Path) -> None:
        with Directory.at(target, make=True) as directory:
            cached = {
                entry.sha256: self._cached(_beside(manifest, entry.sha256)) for entry in entries
            }
            # Sizes in the list need not be true.
            sizes = ((entry.path, cached[entry.sha256].stat().st_size) for entry in entries)
            require_room_for(directory, sizes)
            for entry in entries:
                with (
                    cached[entry.sha256].open("rb") as source,
                    os.fdopen(directory.created(entry.path, entry.mode), "wb") as copy,
                ):
                    shutil.copyfileobj(source, copy, 1 << 20)


def _beside(manifest: str, digest: str) -> str:
    """The name of a file in a list: of whom the list is."""
    owner, slash, _ = manifest.rpartition("/")
    return f"{owner}{slash}{digest}"


async def laid_out(objects: Objects, prefix: str, manifest: bytes, directory: Directory) -> None:
    """Download the files of a list that lie below a prefix; all can be read by the task.

    Raises:
        Missing, Corrupt, StoreUnavailable, BadOrder: The download failed.
        TooLarge, InstanceFailed: The disk has no room for them.
    """
    entries = read_manifest(manifest)
    sizes = [(entry.path, entry.size) for entry in entries]
    await asyncio.to_thread(require_room_for, directory, sizes)

    async def one(entry: FileEntry) -> None:
        place = await asyncio.to_thread(_place, directory, entry.path)
        await objects.fetch(f"{prefix}/files/{entry.path}", place, size=entry.size)
        await asyncio.to_thread(_verify, place, entry.sha256)
        _change_mode(place, entry.mode | 0o444)

    await each(entries, one)


async def fetch_read_only(
    store: Objects, target: Directory, key: str, size: int, path: str
) -> None:
    """Download an object to a path below a directory, unless a file of its size is there."""
    place = await asyncio.to_thread(_place, target, path)
    if _size_of(place) != size:
        await store.fetch(key, place, size=size)
        _change_mode(place, 0o444)


def _place(directory: Directory, path: str) -> DirectoryEntry:
    """Where a file goes below a directory; the directories above it are made."""
    parent, _, name = path.rpartition("/")
    return DirectoryEntry(directory.directory(parent, make=True) if parent else directory, name)


def require_room_for(directory: Directory, sizes: Iterable[tuple[str, int]]) -> None:
    """Check that there is room for files below a directory, by path and size, that are not there.

    Raises:
        TooLarge, InstanceFailed: There is none.
    """
    total = 0
    for path, size in sizes:
        with contextlib.suppress(OSError):
            if directory.status(path).st_size == size:
                continue
        total += size
    require_room(directory, total)


def _opened(place: DirectoryEntry) -> File | None:
    try:
        return place.directory.file(place.name)
    except OSError:
        return None


def _size_of(place: DirectoryEntry) -> int | None:
    file = _opened(place)
    return file.status.st_size if file else None


def _change_mode(place: DirectoryEntry, mode: int) -> None:
    with place.directory.file(place.name) as file:
        os.fchmod(file.fd, mode & 0o777)


def _verify(place: DirectoryEntry, digest: str) -> None:
    with place.directory.file(place.name) as file:
        actual = file.digest()
    if actual != digest:
        raise Corrupt(f"{place.name}: digest {actual} instead of {digest}")


def _is_whole(place: DirectoryEntry, entry: FileEntry) -> bool:
    file = _opened(place)
    return bool(file and file.status.st_size == entry.size and file.digest() == entry.sha256)


def _remove_others(
    directory: Directory,
    wanted: Collection[str],
    prefix: str = "",
    *,
    keep: Callable[[str], bool] = lambda _: False,
) -> None:
    """Remove all files below a directory but those that are wanted or kept."""
    for name in directory.names():
        path = prefix + name
        status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            with directory.directory(name) as below:
                _remove_others(below, wanted, f"{path}/", keep=keep)
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=directory.fd)
        elif not keep(name) and path not in wanted:
            os.unlink(name, dir_fd=directory.fd)
