"""Implements the object store port with obstore: a directory, memory or a bucket."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import ObjectStore as Backend

from eva_master.ports import StoredObject
from eva_wire.values.errors import InvalidKey, NotFound, ObjectChanged, StorageError, StorageFull
from eva_wire.values.ids import Millis

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta

_PART_BYTES = 8 * 1024 * 1024
"""Size of a part in a multipart upload. S3 requires at least 5 MiB and at most 10,000 parts."""
_PARALLEL_PARTS = 4
"""Parts uploaded at a time; with `_PART_BYTES` they bound the memory of a streaming put."""

_LISTED_AT_ONCE = 1_000

_LEAST_ROOM = 1 << 30
"""Bytes of a disk that uploads leave free, or a tenth of a small disk: others write there, too,
such as the master its journal."""
_LOOK_EVERY = 64 << 20
"""Bytes of an upload between two looks at the disk."""

_SPECIAL = re.compile(r"[%#:|\x00-\x1f\x7f-\x9f]")
"""Characters that file names may have but obstore refuses or misreads; % marks an escape."""
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_PARTIAL = re.compile(r"#[0-9]+$")
"""End of the name under which obstore writes a file that is to get another one. Keys have no #."""


class Objects:
    """An `eva_master.ports.ObjectStore`.

    If the iterator of a put raises, nothing is stored and the error is raised. Reading at or beyond
    the end of an object returns no bytes, as with a file. In a directory no key can be the parent
    of another key; avoid such keys in all stores.

    Every method raises `InvalidKey` for a key that could lead out of the store, and `StorageError`
    when the store fails.

    Args:
        backend: The store.
        directory: Where it keeps the objects, if on a disk.
    """

    def __init__(self, backend: Backend, directory: Path | None = None) -> None:
        self._backend = backend
        self._directory = directory

    async def put(self, key: str, data: bytes | AsyncIterator[bytes]) -> None:
        """Store an object; an iterator is consumed with bounded memory.

        Raises:
            StorageFull: Of what an iterator yields, the disk has no room for more.
        """
        location = _location(key)
        if self._directory is not None and not isinstance(data, bytes):
            data = _while_there_is_room(self._directory, data)
        with _failing(key):
            await obstore.put_async(
                self._backend,
                location,
                data,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARALLEL_PARTS,
            )

    async def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Read an object or a part of it, cut at the object's end.

        Raises:
            NotFound: There is no such object.
        """
        location = _location(key)
        with _found(key):
            if offset == 0 and length is None:
                whole = await obstore.get_async(self._backend, location)
                return bytes(await whole.bytes_async())
            # Stores differ in how they treat ranges beyond the end, and refuse empty ones.
            size = (await obstore.head_async(self._backend, location))["size"]
            end = size if length is None else min(size, offset + length)
            if offset >= end:
                return b""
            part = await obstore.get_range_async(self._backend, location, start=offset, end=end)
            return bytes(part)

    async def piece(self, key: str, offset: int, length: int, version: str = "") -> bytes:
        """Read a piece of an object, with one request.

        Args:
            key: The object.
            offset: Byte that the piece begins with.
            length: Size of the piece in bytes, at least 1.
            version: Version that the piece is of, see `StoredObject`; any if empty.

        Raises:
            ObjectChanged: The object is gone, is another version, or ends within the piece.
        """
        location = _location(key)
        options: GetOptions = {"range": (offset, offset + length)}
        if version:
            options["if_match"] = version
        try:
            with _found(key):
                answer = await obstore.get_async(self._backend, location, options=options)
                data = bytes(await answer.bytes_async())
        except (NotFound, ObjectChanged):
            data = b""
        except StorageError:
            # Each store has words of its own for a piece beyond the end of an object.
            stored = await self.find(key)
            if stored is not None and stored.size >= offset + length:
                raise
            data = b""
        if len(data) != length:
            raise ObjectChanged(f"object {key} has been replaced or removed")
        return data

    async def find(self, key: str) -> StoredObject | None:
        """An object without its content; `None` if there is none."""
        location = _location(key)
        try:
            with _found(key):
                return _stored(await obstore.head_async(self._backend, location))
        except NotFound:
            return None

    async def size(self, key: str) -> int | None:
        """The size of an object in bytes; `None` if there is none."""
        stored = await self.find(key)
        return None if stored is None else stored.size

    async def below(self, prefix: str) -> AsyncIterator[Sequence[StoredObject]]:
        """The objects below a prefix, as of `list`, in parts, in any order."""
        location = _location(prefix.removesuffix("/")) if prefix else None
        with _failing(prefix):
            async for batch in obstore.list(self._backend, location, chunk_size=_LISTED_AT_ONCE):
                yield [_stored(meta) for meta in batch]

    async def list(self, prefix: str) -> list[str]:
        """List the keys below a prefix, sorted.

        Args:
            prefix: Whole segments: ``jobs/a`` is no prefix of ``jobs/ab/log``. Empty for all keys.
        """
        return sorted(await self.modified(prefix))

    async def modified(self, prefix: str) -> dict[str, int]:
        """When each object below a prefix, as of `list`, was stored: milliseconds of the epoch."""
        return {
            stored.key: stored.modified_ms async for part in self.below(prefix) for stored in part
        }

    async def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""
        location = _location(key)
        try:
            with _found(key):
                await obstore.delete_async(self._backend, location)
        except NotFound:
            return

    async def clear_partial(self, prefix: str, before_ms: int, *, dry_run: bool) -> Sequence[int]:
        """Remove the files of puts that a directory has of processes that died meanwhile.

        In a bucket, incomplete uploads are removed by the bucket's own rule.

        Args:
            prefix: As of `list`.
            before_ms: Files that were written since stay, as their puts may go on.
            dry_run: Whether they are only counted.

        Returns:
            Their sizes in bytes.
        """
        if self._directory is None:
            return []
        root = self._directory / _location(prefix)
        with _failing(prefix):
            return await asyncio.to_thread(_clear_partial, root, before_ms, dry_run=dry_run)


def _clear_partial(root: Path, before_ms: int, *, dry_run: bool) -> list[int]:
    sizes = []
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names if _PARTIAL.search(name)):
            with suppress(FileNotFoundError):  # A put has come to its end.
                status = path.lstat()
                # A copy is a link at first, which has the time of its source.
                if max(status.st_mtime, status.st_ctime) * 1_000 < before_ms:
                    if not dry_run:
                        path.unlink()
                    sizes.append(status.st_size)
    return sizes


async def _while_there_is_room(directory: Path, data: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    seen = _LOOK_EVERY
    async for piece in data:
        seen += len(piece)
        if seen >= _LOOK_EVERY:
            seen = 0
            disk = os.statvfs(directory)
            least = min(_LEAST_ROOM, disk.f_blocks * disk.f_frsize // 10)
            if disk.f_bavail * disk.f_frsize < least + _LOOK_EVERY:
                raise StorageFull(
                    f"the object store's disk has less than {(least + _LOOK_EVERY) >> 20:,} MiB"
                    " left, so no more files are taken",
                    hint="have an operator make room, or leave large files out of the upload",
                )
        yield piece


def _location(key: str) -> str:
    """Escape a key for obstore."""
    if any(segment in {"", ".", ".."} for segment in key.split("/")):
        raise InvalidKey(
            f"{key!r} is no object key", hint="write names separated by single slashes, no . or .."
        )
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidKey(f"{key!r} is no object key: it is not Unicode text") from error
    return _SPECIAL.sub(lambda special: f"%{ord(special[0]):02X}", key)


def _key(location: str) -> str:
    """The inverse of `_location`."""
    return _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)), location)


def _stored(meta: ObjectMeta) -> StoredObject:
    return StoredObject(
        _key(meta["path"]),
        meta["size"],
        Millis(round(meta["last_modified"].timestamp() * 1000)),
        meta["e_tag"] or "",
    )


@contextmanager
def _failing(key: str) -> Iterator[None]:
    try:
        yield
    except PreconditionError as error:
        raise ObjectChanged(f"object {key} has been replaced") from error
    except BaseError as error:
        # The remaining lines are only for obstore's developers.
        reason = str(error).partition("\n")[0]
        raise StorageError(f"object {key}: {reason}") from error


@contextmanager
def _found(key: str) -> Iterator[None]:
    try:
        with _failing(key):
            yield
    except FileNotFoundError as error:
        raise NotFound(f"no object {key}") from error
