"""Downloads the files that a task needs before it starts."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from weakref import WeakValueDictionary

from eva_worker.errors import BadOrder, Corrupt, Missing, UnsupportedInput
from eva_worker.files.checkpoints import checkpoint_key, newest
from eva_worker.files.objects import Objects
from eva_worker.files.parts import is_part

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PARALLEL = 8
_T = TypeVar("_T")
_BLOCK = 1 << 20


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


def read_manifest(data: bytes) -> list[FileEntry]:
    """Read a file list.

    Raises:
        BadOrder: It is no file list, or a path in it leaves the directory.
    """
    try:
        entries = [
            FileEntry(str(e["path"]), int(e["mode"]), str(e["sha256"]), int(e["size"]))
            for e in json.loads(data)["files"]
        ]
    except (ValueError, TypeError, KeyError) as error:
        raise BadOrder(f"not a list of files: {error!r}") from error
    for entry in entries:
        parts = PurePosixPath(entry.path).parts
        if entry.path != "/".join(parts) or {"..", "/", ""} & {*parts} or "\0" in entry.path:
            raise BadOrder(f"file outside its directory: {entry.path!r}")
        if not parts or not _DIGEST.fullmatch(entry.sha256):
            raise BadOrder(f"not a file: {entry.path!r} {entry.sha256!r}")
    return entries


def _steps_held(manifest: bytes) -> int:
    return int(json.loads(manifest).get("steps", 0))


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hex; blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Fetcher:
    """Downloads files to the instance.

    Args:
        objects: The store that they come from.
        cache: Directory for blobs, shared by all tasks of the instance.
    """

    def __init__(self, objects: Objects, cache: Path) -> None:
        self._objects = objects
        self._cache = cache
        self._parallel = asyncio.Semaphore(_PARALLEL)
        self._fetching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def prefetch(self, manifest: str) -> list[FileEntry]:
        """Download a working directory's files into the cache; returns their list.

        Raises:
            Missing, Corrupt, StoreUnavailable, BadOrder: The download failed.
        """
        if not manifest:
            return []
        path = await self._blob(manifest)
        entries = read_manifest(await asyncio.to_thread(path.read_bytes))
        await together(self._blob(entry.sha256, entry.size) for entry in entries)
        return entries

    async def workdir(self, manifest: str, target: Path) -> None:
        """Lay out a working directory.

        Files are copied, not linked, since a task may write to its own.

        Args:
            manifest: Digest of its manifest, empty for an empty directory.
            target: Made if need be; files that are there are overwritten.

        Raises:
            Missing, Corrupt, StoreUnavailable, BadOrder: As for `prefetch`.
        """
        entries = await self.prefetch(manifest)
        await asyncio.to_thread(self._lay_out, entries, target)

    async def inputs(self, inputs: Mapping[str, str], target: Path) -> None:
        """Copy a task's inputs, each to ``target/NAME``, read-only.

        Raises:
            UnsupportedInput: A URL is neither local nor of S3, or a name is not a file name.
            Missing: There is nothing at a URL.
            StoreUnavailable: S3 failed. What has arrived is kept for the next try.
        """
        target.mkdir(parents=True, exist_ok=True)
        for name, url in sorted(inputs.items()):
            if name in {"", ".", ".."} or "/" in name:
                raise UnsupportedInput(f"input {name!r}: not a file name")
            if urlsplit(url).scheme == "s3":
                await self._stored_input(url, target / name)
            else:
                await asyncio.to_thread(_copy_input, _local_path(url), target / name)

    async def _stored_input(self, url: str, target: Path) -> None:
        """Download an object, or all objects below a prefix."""
        parts = urlsplit(url)
        store = self._objects.elsewhere(urlunsplit(parts._replace(path="")))
        key = unquote(parts.path).strip("/")
        size = await store.size(key) if key and not parts.path.endswith("/") else None
        if size is not None:
            wanted = [(key, size, target)]
        else:
            found = [it async for it in store.sizes(key)]
            wanted = [(it, size, target / it.removeprefix(key).lstrip("/")) for it, size in found]
        if not wanted:
            raise Missing(f"no such input: {url}")
        await together(self._one_input(store, *each) for each in wanted)

    async def _one_input(self, store: Objects, key: str, size: int, target: Path) -> None:
        async with self._parallel:
            if not (target.is_file() and target.stat().st_size == size):
                await store.fetch(key, target, size=size)
                target.chmod(0o444)

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
        target.mkdir(parents=True, exist_ok=True)
        generation = await newest(self._objects, run) if wanted is None else wanted
        if generation == 0:
            return 0, 0
        prefix = checkpoint_key(run, generation)
        manifest = await self._objects.get(f"{prefix}/manifest.json")
        entries, steps = read_manifest(manifest), _steps_held(manifest)
        if (target / f"{generation:08d}").exists():
            return generation, steps
        aside = target / f".tmp-restore-{generation:08d}"
        # Files that an earlier try has downloaded are kept if they are in this list and complete.
        paths = {entry.path for entry in entries}
        await asyncio.to_thread(_remove_others, aside, paths, keep=is_part)
        await together(self._restore(f"{prefix}/files/{e.path}", e, aside) for e in entries)
        await asyncio.to_thread(_remove_others, aside, paths)
        aside.rename(target / f"{generation:08d}")
        return generation, steps

    async def _restore(self, key: str, entry: FileEntry, directory: Path) -> None:
        target = directory / entry.path
        async with self._parallel:
            if not await asyncio.to_thread(_is_whole, target, entry):
                await self._objects.fetch(key, target, size=entry.size)
                await asyncio.to_thread(_verify, target, entry.sha256)
        target.chmod(entry.mode)

    async def _blob(self, digest: str, size: int = 0) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise BadOrder(f"not a digest: {digest!r}")
        path = self._cached(digest)
        # One task at a time downloads a blob, under the same name each time until it is verified,
        # so that a later try continues where an earlier one stopped.
        async with self._fetching.setdefault(digest, asyncio.Lock()), self._parallel:
            if not path.exists():
                aside = path.with_name(f".unverified-{digest}")
                await self._objects.fetch(f"blobs/{digest[:2]}/{digest}", aside, size=size)
                try:
                    await asyncio.to_thread(_verify, aside, digest)
                    aside.replace(path)
                finally:
                    aside.unlink(missing_ok=True)
        return path

    def _cached(self, digest: str) -> Path:
        return self._cache / digest[:2] / digest

    def _lay_out(self, entries: Iterable[FileEntry], target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            path = target / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            shutil.copyfile(self._cached(entry.sha256), path)
            path.chmod(entry.mode & 0o777)


async def together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all at once and return their results; the first failure cancels the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _verify(path: Path, digest: str) -> None:
    found = digest_of(path)
    if found != digest:
        raise Corrupt(f"{path.name}: digest {found} instead of {digest}")


def _is_whole(path: Path, entry: FileEntry) -> bool:
    return path.is_file() and path.stat().st_size == entry.size and digest_of(path) == entry.sha256


def _remove_others(
    directory: Path, wanted: Collection[str], *, keep: Callable[[Path], bool] = lambda _: False
) -> None:
    """Make a directory, and remove all files from it but those that are wanted or kept."""
    directory.mkdir(exist_ok=True)
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                path.rmdir()
        elif not keep(path) and path.relative_to(directory).as_posix() not in wanted:
            path.unlink()


def _local_path(url: str) -> Path:
    parts = urlsplit(url)
    if parts.scheme not in {"", "file"} or parts.netloc not in {"", "localhost"}:
        raise UnsupportedInput(
            f"cannot fetch {url}: only s3:// and file:// URLs and paths are supported"
        )
    path = Path(unquote(parts.path) if parts.scheme else url)
    if not path.is_absolute():
        raise UnsupportedInput(f"cannot fetch {url}: the path is not absolute")
    return path


def _copy_input(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, copy_function=_copy_read_only)
    elif source.exists():
        _copy_read_only(str(source), str(target))
    else:
        raise Missing(f"no such input: {source}")


def _copy_read_only(source: str, target: str) -> None:
    path = Path(target)
    path.unlink(missing_ok=True)  # A leftover of an earlier try that was interrupted.
    shutil.copyfile(source, path)
    path.chmod(0o444)
