"""The object store as files and keys. Errors of obstore do not leave this module."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import obstore
import structlog
from obstore.exceptions import BaseError, PermissionDeniedError
from obstore.store import LocalStore, S3Store
from obstore.store import ObjectStore as Backend

from eva_worker.errors import (
    Forbidden,
    Missing,
    StoreUnavailable,
    TransferFailed,
    UnstorableName,
)
from eva_worker.files.beneath import Directory, DirectoryEntry, File
from eva_worker.files.multipart import Multipart
from eva_worker.files.parts import MIB, PART, ByteAllowance, PartFile, TransferPlan, plan
from eva_worker.process.backoff import Backoff

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import S3Config

# obstore refuses these characters though a file's name may have them; % marks an escape. The
# master's object store reads and writes the same escapes.
_SPECIAL = re.compile(r"[%#:|\x00-\x1f\x7f-\x9f]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")
_BLOCK = MIB
_LONGEST_KEY = 1_000
"""Bytes of an escaped key below the store's own prefix; S3 takes 1,024 in all."""
_LONGEST_NAME = 240
"""Bytes of a name in it: a directory takes 255, and the store adds a few while it writes."""
# The error of a directory for a name that it cannot have, and when an object may be in the way of
# another one, such as a/b where there is a.
_NAME_TOO_LONG = "(os error 36)"
_IN_THE_WAY = re.compile(r"\(os error (?:20|21|39)\)")
_ORDINARY_S, _PATIENT_S = 30.0, 600.0
"""Limits of a request as a whole; the longer one of what S3 does by itself for minutes."""
_T = TypeVar("_T")

_log = structlog.get_logger()


class Objects:
    """An object store.

    Args:
        url: URL of the store, such as ``file:///var/lib/eva/objects``, or ``s3://bucket/prefix``
            with ``?region=NAME&endpoint=URL`` where the environment does not name them. Credentials
            are those of the environment or the instance.
        escaped: Whether keys are escaped as this project escapes them.
        uploads: Directory of the records of uploads to S3 in progress, which a later try continues.
            Without it, a later try begins again.

    Attributes:
        url: As given.

    Every method raises `StoreUnavailable` when the store fails, and so does the constructor.
    """

    def __init__(self, url: str, *, escaped: bool = True, uploads: Path | None = None) -> None:
        self._location = _location if escaped else _checked
        self._key = _key if escaped else str
        self.url = url
        self._store = _backend(url, _ORDINARY_S)
        # S3 may take minutes to assemble the parts of a very large object.
        self._patient = _backend(url, _PATIENT_S)
        self._allowance = ByteAllowance()
        self._multipart = _multipart(url, uploads) if uploads else None

    async def put(self, key: str, data: bytes | Path | File) -> int:
        """Store bytes, or a file as it is now.

        Args:
            key: The object's key.
            data: The bytes; an open file; or the path of a file that no task can change.

        Returns:
            How many bytes were sent. Parts of a large file that an earlier try has stored are not.

        Raises:
            Missing: The file does not exist.
            UnstorableName: The key is not valid in the store.
        """
        if isinstance(data, Path):
            with await asyncio.to_thread(File.at, data) as file:
                return await self.put(key, file)
        location = self._location(key)
        self._require_room(key, location)
        size = len(data) if isinstance(data, bytes) else data.status.st_size
        how = plan(size)
        if self._multipart and isinstance(data, File) and size > PART:
            return await self._multipart.put(location, data, how)
        try:
            # The store does not know the upload because an earlier try has completed it.
            with _translated(key, missing=StoreUnavailable):
                async with self._allowance.of(how.buffers):
                    store = self._patient if size > PART else self._store
                    await _put(store, location, data, how)
        except StoreUnavailable as error:
            if await asyncio.to_thread(self._cannot_have, location, error):
                raise UnstorableName(f"another object is in its way: {key[:200]!r}") from error
            raise
        return size

    def _cannot_have(self, location: str, error: StoreUnavailable) -> bool:
        """Whether a store that is a directory cannot have a name, however often it is asked.

        The error is no proof: if the store's own directory was away, it may be back by now.
        """
        if not isinstance(self._store, LocalStore):
            return False
        said, root = str(error.__cause__), Path(unquote(urlsplit(self.url).path))
        if _NAME_TOO_LONG in said:
            return root.is_dir()
        if not _IN_THE_WAY.search(said):
            return False
        place = root / location
        above = [parent for parent in place.parents if root in parent.parents]
        return place.is_dir() or any(parent.exists() and not parent.is_dir() for parent in above)

    def _require_room(self, key: str, location: str) -> None:
        """Refuse keys that are too long for the store; raises `UnstorableName`."""
        names = [len(name.encode()) for name in location.split("/")]
        if sum(names) + len(names) > _LONGEST_KEY or max(names) > _LONGEST_NAME:
            raise UnstorableName(f"too long for the object store: {key[:80]!r}...")

    async def copy(self, source: str, key: str) -> None:
        """Copy an object within the store, without downloading it; raises `Missing`."""
        with _translated(source):
            # S3 takes more than half a minute to copy some gigabytes.
            await obstore.copy_async(self._patient, self._location(source), self._location(key))

    async def get(self, key: str) -> bytes:
        """Read a small object; raises `Missing`."""
        with _translated(key):
            result = await obstore.get_async(self._store, self._location(key))
            return bytes(await result.bytes_async())

    async def fetch(
        self,
        key: str,
        target: Path | DirectoryEntry,
        *,
        size: int = 0,
        admit: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Download an object to a file, which appears atomically; raises `Missing`.

        Args:
            key: The object's key.
            target: The file, or its path if no task can change that; its directory is then made.
            size: About how large the object is said to be, if known. A large object is downloaded
                in several parts at a time, and a second try continues where the first one failed.
            admit: Called with its true size before anything is written; what it raises ends the
                download.
        """
        if isinstance(target, Path):
            target = DirectoryEntry(Directory.at(target.parent, make=True), target.name)
        if size > PART or not await self._fetch_small(key, target, admit):
            await self._fetch_parts(key, target, admit)

    async def _fetch_small(
        self, key: str, target: DirectoryEntry, admit: Callable[[int], None]
    ) -> bool:
        """Download an object in one piece; returns whether it was small enough for that."""
        aside = target.path.with_name(f".tmp-{secrets.token_hex(8)}")
        try:
            with _translated(key), aside.open("xb") as file:
                async with self._allowance.of(2 * _BLOCK):
                    result = await obstore.get_async(self._store, self._location(key))
                    if result.meta["size"] > PART:
                        return False
                    admit(result.meta["size"])
                    async for block in result.stream(min_chunk_size=_BLOCK):
                        await asyncio.to_thread(file.write, block)
            aside.replace(target.path)
        finally:
            aside.unlink(missing_ok=True)
        return True

    async def _fetch_parts(
        self, key: str, target: DirectoryEntry, admit: Callable[[int], None]
    ) -> None:
        location = self._location(key)
        with _translated(key):
            head = await obstore.head_async(self._store, location)
            admit(head["size"])
            how = plan(head["size"])
            version = head["e_tag"] or str(head["last_modified"])
            file = PartFile(target, version, head["size"], how.part)

            async def read(start: int, length: int) -> AsyncGenerator[memoryview, None]:
                options: GetOptions = {"range": (start, start + length)}
                if head["e_tag"]:
                    options["if_match"] = head["e_tag"]
                async with self._allowance.of(2 * _BLOCK):
                    result = await obstore.get_async(self._store, location, options=options)
                    async for block in result.stream(min_chunk_size=_BLOCK):
                        yield memoryview(block)

            await file.fill(read, how.at_once)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        """Keys below a prefix, in no order."""
        async for key, _ in self.sizes(prefix):
            yield key

    async def sizes(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        """Keys below a prefix, empty for all, and the sizes of their objects, in no order."""
        with _translated(prefix):
            async for page in obstore.list(self._store, self._location(prefix) if prefix else None):
                for entry in page:
                    yield self._key(entry["path"]), entry["size"]

    async def size(self, key: str) -> int | None:
        """How large an object is, `None` if there is none."""
        try:
            with _translated(key):
                return (await obstore.head_async(self._store, self._location(key)))["size"]
        except Missing:
            return None

    def elsewhere(self, url: str) -> Objects:
        """Another store, such as ``s3://bucket``, by default with this one's region."""
        parts, ours = urlsplit(url), urlsplit(self.url)
        options = dict(parse_qsl(ours.query)) if ours.scheme == parts.scheme else {}
        query = urlencode({**options, **dict(parse_qsl(parts.query))})
        store_url = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
        return Objects(store_url, escaped=False)

    async def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""
        location = self._location(key)
        with contextlib.suppress(Missing), _translated(key):
            await obstore.delete_async(self._store, location)
        if isinstance(self._store, LocalStore):
            root = Path(unquote(urlsplit(self.url).path))
            await asyncio.to_thread(_remove_empty, root / location, root)


async def _put(store: Backend, location: str, data: bytes | File, how: TransferPlan) -> None:
    """Store bytes or an open file. A file is read by its descriptor, whatever its name means now.

    If the caller is cancelled, the file stays open until the store has done with it: the number of
    a closed descriptor may be another file's at once.
    """
    source = data if isinstance(data, bytes) else File(os.dup(data.fd), data.label)
    work = asyncio.ensure_future(
        obstore.put_async(
            store,
            location,
            source if isinstance(source, bytes) else source.place,
            use_multipart=how.several,
            chunk_size=how.part,
            max_concurrency=how.at_once,
        )
    )

    def over(_: Any) -> None:
        if isinstance(source, File):
            source.close()
        if not work.cancelled():
            work.exception()  # A caller that was cancelled does not ask for it.

    work.add_done_callback(over)
    await asyncio.shield(work)


def _remove_empty(gone: Path, root: Path) -> None:
    """Remove the directories that a removed file leaves empty, since they slow listing down."""
    with contextlib.suppress(OSError):
        for parent in gone.parents:
            if parent == root:
                return
            parent.rmdir()


def _multipart(url: str, records: Path) -> Multipart | None:
    parts = urlsplit(url)
    if parts.scheme != "s3":
        return None
    options = dict(parse_qsl(parts.query))
    return Multipart(
        parts.netloc,
        unquote(parts.path).strip("/"),
        region=options.get("region", ""),
        endpoint=options.get("endpoint", ""),
        records=records,
    )


def _backend(url: str, timeout_s: float) -> Backend:
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            return LocalStore(unquote(parts.path), mkdir=True)
        if parts.scheme != "s3":
            raise StoreUnavailable(f"object store {url}: neither file:// nor s3://")
        options = dict(parse_qsl(parts.query))
        config: S3Config = {}
        if "region" in options:
            config["region"] = options["region"]
        if "endpoint" in options:
            config["endpoint"] = options["endpoint"]
        return S3Store(
            parts.netloc,
            prefix=unquote(parts.path).strip("/") or None,
            config=config,
            client_options={
                "allow_http": options.get("endpoint", "").startswith("http://"),
                "timeout": timedelta(seconds=timeout_s),
            },
        )
    except (BaseError, OSError) as error:
        raise StoreUnavailable(f"object store {url}: {error}") from error


def _location(key: str) -> str:
    """The key as obstore takes it: escaped, so that any file name is valid."""
    return _SPECIAL.sub(lambda special: f"%{ord(special[0]):02X}", _checked(key))


def _checked(key: str) -> str:
    """Return the key if it is valid; raises `UnstorableName`."""
    if any(segment in {"", ".", ".."} for segment in key.split("/")):
        raise UnstorableName(f"no key for an object: {key!r}")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise UnstorableName(f"not UTF-8: {os.fsencode(key)!r}") from error
    return key


def _key(location: str) -> str:
    """The inverse of `_location`."""
    return _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)), location)


@contextlib.contextmanager
def _translated(key: str, missing: type[TransferFailed] = Missing) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise missing(f"no such object: {key}") from error
    except PermissionDeniedError as error:
        first = str(error).partition("\n")[0]
        raise Forbidden(f"object store denies access to {key}: {first}") from error
    except (BaseError, OSError) as error:
        first = str(error).partition("\n")[0]
        raise StoreUnavailable(f"object store failed at {key}: {first}") from error


async def persistently(
    what: Callable[[], Awaitable[_T]], *, tries: int | None = None, subject: str
) -> _T:
    """Repeat an action until the store and the disk let it succeed.

    Args:
        what: The action, which must be safe to repeat.
        tries: How often to try; `None` for no limit.
        subject: Names the action in the log.

    Raises:
        StoreUnavailable, OSError: The last try failed too.
    """
    backoff = Backoff()
    while True:
        try:
            return await what()
        except (StoreUnavailable, OSError) as error:
            if tries is not None and backoff.failures + 1 >= tries:
                raise
            pause = backoff.next_s()
            _log.warning("store failed", subject=subject, error=str(error), again_in_s=pause)
            await asyncio.sleep(pause)
