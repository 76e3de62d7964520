"""Uploads large files to S3 in parts; a new try continues where the last one stopped.

obstore, which does all other transfers, does not tell the state of an upload. So this module uses
AWS's own client, which is loaded when the first large file is uploaded.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from eva_worker.at_once import together
from eva_worker.errors import Missing, StoreUnavailable
from eva_worker.files.beneath import File
from eva_worker.files.parts import TransferPlan
from eva_worker.process.durable_files import read_json, write_json

if TYPE_CHECKING:
    from typing_extensions import Buffer

_VERSION = "eva-version"
_THREADS = 8
_TRIES = 3
_CONNECT_S, _ANSWER_S = 5.0, 60.0

_log = structlog.get_logger()


class _Gone(Exception):
    """S3 does not know the upload or the object."""


@dataclass(frozen=True, slots=True)
class _Upload:
    """An upload in progress, as it is recorded before its first part is sent.

    Attributes:
        bucket: The bucket of the object.
        key: The object's key in the bucket.
        id: S3's identifier of the upload.
        path: The file.
        version: Identifies the file's content; parts of two versions are never mixed.
        part: Bytes in each part but the last.
    """

    bucket: str
    key: str
    id: str
    path: str
    version: str
    part: int


@dataclass(frozen=True, slots=True)
class UploadSource:
    """A file as it was when its upload began."""

    file: File
    size: int
    version: str

    @classmethod
    def of(cls, file: File) -> UploadSource:
        """Note an open file's size and version."""
        status = file.status
        version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
        return cls(file, status.st_size, version)

    def part(self, start: int, length: int) -> FilePart:
        """Open a part; the caller closes it. Raises `Missing` if the file was cut meanwhile."""
        file = io.FileIO(os.dup(self.file.fd))
        if os.fstat(file.fileno()).st_size < start + length:
            file.close()
            raise Missing(f"cut while it was stored: {self.file.label}")
        return FilePart(file, start, length)


class FilePart(io.RawIOBase):
    """A part of a file that is read like a file, without being loaded into memory.

    Args:
        file: The whole file, closed with this one.
        start: Where the part begins.
        length: In bytes.
    """

    def __init__(self, file: io.FileIO, start: int, length: int) -> None:
        self._file, self._start, self._length = file, start, length
        self._at = 0

    def readable(self) -> bool:
        """See `io.RawIOBase.readable`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase.seekable`."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """See `io.RawIOBase.seek`."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = min(max(0, base + offset), self._length)
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        """See `io.RawIOBase.readinto`."""
        view = memoryview(buffer)[: self._length - self._at]
        count = os.preadv(self._file.fileno(), [view], self._start + self._at)
        self._at += count
        return count

    def close(self) -> None:
        """See `io.RawIOBase.close`."""
        self._file.close()
        super().close()


class Multipart:
    """Uploads files to one bucket, on one event loop.

    Args:
        bucket: Its name.
        prefix: Prefix of all keys; empty for none.
        region: The bucket's region; empty to take it from the environment.
        endpoint: URL of S3; empty to take it from the environment, or AWS's own.
        records: Directory of the records of uploads in progress.
    """

    def __init__(
        self, bucket: str, prefix: str, *, region: str, endpoint: str, records: Path
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = region
        self._endpoint = endpoint
        self._records = records
        self._lock = threading.Lock()
        self._made: Any = None
        self._active: set[Path] = set()
        # Its own threads, so that an S3 that hangs does not keep the event loop from writing
        # records.
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="s3")

    async def put(self, location: str, file: File, how: TransferPlan) -> int:
        """Store a file. The object appears when the last part is stored.

        Args:
            location: Key below the prefix.
            file: The open file. A copy of its descriptor is used, so that the caller may close it.
            how: Size and number of the parts.

        Returns:
            How many bytes were sent. Parts that an earlier try has stored are not sent again.

        Raises:
            Missing: The file was cut meanwhile.
            StoreUnavailable: S3 failed. The next try continues from here.
        """
        key = self._prefix + location
        name = hashlib.sha256(f"{self._bucket}/{key}".encode()).hexdigest()[:32]
        record = self._records / f"{name}.json"
        await self._abandon_orphans()
        # Never closed by hand: a part may still be sent in a thread after a cancellation.
        source = UploadSource.of(File(os.dup(file.fd), file.label))
        self._active.add(record)
        try:
            return await self._put(key, record, source, how)
        finally:
            self._active.discard(record)

    async def _put(self, key: str, record: Path, source: UploadSource, how: TransferPlan) -> int:
        upload, stored = await self._resumed(key, record, source, how.part)
        if upload is None:
            return 0
        numbers = range(1, -(-source.size // how.part) + 1)
        lengths = {
            number: min(how.part, source.size - (number - 1) * how.part) for number in numbers
        }
        tags = {
            number: tag for number, (tag, size) in stored.items() if size == lengths.get(number)
        }
        missing = deque(number for number in numbers if number not in tags)
        sent = sum(lengths[number] for number in missing)

        async def work() -> None:
            while missing:
                number = missing.popleft()
                start = (number - 1) * how.part
                send = partial(self._send, upload, number, source, start, lengths[number])
                tags[number] = await self._aside(send)

        await together(work() for _ in range(how.at_once))
        parts = [{"PartNumber": number, "ETag": tags[number]} for number in numbers]
        done = {"Key": key, "UploadId": upload.id, "MultipartUpload": {"Parts": parts}}
        try:
            await self._call("complete_multipart_upload", done)
        except _Gone as error:
            # The client itself repeats a call that got no answer.
            if not await self._is_stored(key, source):
                raise StoreUnavailable(f"object store has ended an upload: {key}") from error
        await asyncio.to_thread(record.unlink, missing_ok=True)
        return sent

    async def _resumed(
        self, key: str, record: Path, source: UploadSource, part: int
    ) -> tuple[_Upload | None, Mapping[int, tuple[str, int]]]:
        """The upload to continue, a new one if need be, and its stored parts: tag and size.

        Returns:
            `None` for the upload if it is complete, which the last try did not learn.
        """
        earlier = await asyncio.to_thread(_read, record)
        if earlier is not None and (earlier.version, earlier.part) == (source.version, part):
            try:
                return earlier, await self._aside(partial(self._parts, earlier))
            except _Gone:
                if await self._is_stored(key, source):
                    await asyncio.to_thread(record.unlink, missing_ok=True)
                    return None, {}
        elif earlier is not None:
            await self._abort(earlier)
        begin = {"Key": key, "Metadata": {_VERSION: source.version}}
        begun = await self._call("create_multipart_upload", begin)
        upload = _Upload(
            self._bucket, key, begun["UploadId"], source.file.label, source.version, part
        )
        await asyncio.to_thread(write_json, record, asdict(upload), sync=False)
        return upload, {}

    async def _is_stored(self, key: str, source: UploadSource) -> bool:
        try:
            head = await self._call("head_object", {"Key": key})
        except _Gone:
            return False
        return bool(head.get("Metadata", {}).get(_VERSION) == source.version)

    async def _abandon_orphans(self) -> None:
        """Abort uploads whose file is gone, since their stored parts cost money."""
        for record in await asyncio.to_thread(lambda: list(self._records.glob("*.json"))):
            if record in self._active:
                continue
            upload = await asyncio.to_thread(_read, record)
            if upload is None or upload.bucket != self._bucket or os.path.lexists(upload.path):
                continue
            try:
                await self._abort(upload)
            except StoreUnavailable as error:
                _log.warning("an upload is not ended", key=upload.key, error=str(error))
            else:
                await asyncio.to_thread(record.unlink, missing_ok=True)

    async def _abort(self, upload: _Upload) -> None:
        try:
            await self._call("abort_multipart_upload", {"Key": upload.key, "UploadId": upload.id})
        except _Gone:
            return

    # -- in threads of their own -----------------------------------------------------------------

    async def _call(self, name: str, request: Mapping[str, Any]) -> Any:
        """Make a call; raises `StoreUnavailable`, or `_Gone` if S3 does not know the upload."""
        return await self._aside(
            lambda: getattr(self._client(), name)(Bucket=self._bucket, **request)
        )

    async def _aside(self, what: Callable[[], Any]) -> Any:
        """Run a call in a thread; raises as `_call` does."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._checked, what)

    def _checked(self, what: Callable[[], Any]) -> Any:
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            CredentialRetrievalError,
            NoCredentialsError,
        )

        try:
            return what()
        except (BotoCoreError, ClientError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
            if code in {"NoSuchUpload", "NoSuchKey", "404"}:
                raise _Gone from error
            no_credentials = isinstance(error, NoCredentialsError | CredentialRetrievalError)
            if no_credentials or code == "ExpiredToken":
                # A client asks for credentials once, and keeps expired ones for minutes.
                with self._lock:
                    self._made = None
            raise StoreUnavailable(f"object store failed: {error}") from error

    def _send(
        self, upload: _Upload, number: int, source: UploadSource, start: int, length: int
    ) -> str:
        """Store one part; returns the tag that S3 gave it."""
        try:
            with source.part(start, length) as body:
                answer = self._client().upload_part(
                    Bucket=self._bucket,
                    Key=upload.key,
                    UploadId=upload.id,
                    PartNumber=number,
                    Body=body,
                )
        except self._client().exceptions.NoSuchUpload as error:
            # The next try finds the same and begins a new upload.
            raise StoreUnavailable(f"object store has ended an upload: {upload.key}") from error
        return str(answer["ETag"])

    def _parts(self, upload: _Upload) -> dict[int, tuple[str, int]]:
        pages = self._client().get_paginator("list_parts")
        return {
            part["PartNumber"]: (part["ETag"], part["Size"])
            for page in pages.paginate(Bucket=self._bucket, Key=upload.key, UploadId=upload.id)
            for part in page.get("Parts", ())
        }

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def _make(self) -> Any:
        import botocore.session
        from botocore.config import Config

        endpoint = self._endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_ANSWER_S,
            max_pool_connections=_THREADS,
            retries={"total_max_attempts": _TRIES, "mode": "standard"},
            # A substitute for S3 may support neither checksums nor buckets as host names.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"} if endpoint else {},
        )
        return botocore.session.get_session().create_client(
            "s3",
            region_name=self._region or None,
            endpoint_url=endpoint or None,
            config=config,
        )


def _read(record: Path) -> _Upload | None:
    try:
        document = read_json(record)
    except ValueError:  # A power cut; the bucket's lifecycle rule ends this upload.
        return None
    return None if document is None else _Upload(**document)
