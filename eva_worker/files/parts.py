"""Transfers of large objects in parts: their size, how many at a time, which are done."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass

from eva_worker.at_once import together
from eva_worker.files.beneath import DirectoryEntry

MIB = 1 << 20
PART = 8 * MIB
"""Bytes in a part: S3 is fastest with 8 to 16 MiB a request. Smaller objects have one part."""
BUFFERS = 32 * MIB
"""Bytes in memory that all transfers of a worker may take together, besides those of the HTTP
client."""
_PREFIX = ".part-"
_MOST_PARTS = 10_000
"""Parts that a multipart upload to S3 may have."""


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """How an object of some size is transferred.

    Attributes:
        part: Bytes in each part but the last.
        at_once: Parts under way at a time.
        several: Whether there is more than one part.
    """

    part: int
    at_once: int

    several: bool

    @property
    def buffers(self) -> int:
        """Bytes of memory that the transfer takes."""
        return self.part * self.at_once


def plan(size: int) -> TransferPlan:
    """Plan the transfer of an object of `size` bytes: parts of 8 MiB, larger ones beyond 78 GiB."""
    part = max(PART, -(-size // _MOST_PARTS))
    parts = max(1, -(-size // part))
    at_once = max(1, min(parts, BUFFERS // part))
    return TransferPlan(min(part, max(size, 1)) if parts == 1 else part, at_once, parts > 1)


class ByteAllowance:
    """A limited number of bytes, handed out on one event loop; first come, first served.

    Args:
        total: How many there are. A request for more gets all of them.
    """

    def __init__(self, total: int = BUFFERS) -> None:
        self._total = self._left = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def of(self, wanted: int) -> AsyncIterator[None]:
        """Hold `wanted` bytes for the duration of a block."""
        wanted = min(wanted, self._total)
        await self._take(wanted)
        try:
            yield
        finally:
            self._left += wanted
            self._serve()

    async def _take(self, wanted: int) -> None:
        if not self._waiting and wanted <= self._left:
            self._left -= wanted
            return
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, served))
        try:
            await served
        except asyncio.CancelledError:
            if served.done() and not served.cancelled():
                self._left += (
                    wanted  # The waiter was served but was cancelled before it could notice.
                )
            self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting:
            wanted, served = self._waiting[0]
            if not served.done():
                if wanted > self._left:
                    return
                self._left -= wanted
                served.set_result(None)
            self._waiting.popleft()


def is_part(name: str) -> bool:
    """Whether a file's name is that of an unfinished `PartFile`, which a later try may need."""
    return name.startswith(_PREFIX)


class PartFile:
    """A file that is downloaded in parts and continues where an earlier try stopped.

    A file beside it lists the parts that have arrived. Both names contain the version of the
    object, so that parts of two versions are never mixed.

    Args:
        place: Where the whole file is to appear.
        version: Names the object's content, such as its ETag.
        size: In bytes.
        part: Bytes in each part.
    """

    def __init__(self, place: DirectoryEntry, version: str, size: int, part: int) -> None:
        # Kept, so that the directory is open while a thread may still write.
        self._place = place
        target = place.path
        hashed = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
        name = hashlib.sha256(f"{version}\0{size}\0{part}".encode()).hexdigest()[:16]
        self._target = target
        self._size, self._part = size, part
        self.path = target.with_name(f"{_PREFIX}{name}-{hashed}")
        self._list = self.path.with_name(f"{self.path.name}.list")

    async def fill(
        self,
        read: Callable[[int, int], AsyncGenerator[bytes | memoryview, None]],
        at_once: int,
    ) -> None:
        """Download the missing parts and give the file its name. A failure keeps what has arrived.

        Args:
            read: Reads a number of bytes from an offset on, block by block.
            at_once: How many parts at a time.

        Raises:
            OSError: The disk failed, or fewer bytes than promised arrived.
        """
        missing = deque(await asyncio.to_thread(self._missing))

        async def work() -> None:
            while missing:
                number = missing.popleft()
                start = number * self._part
                length = min(self._part, self._size - start)
                at = start
                async with contextlib.aclosing(read(start, length)) as blocks:
                    async for block in blocks:
                        await asyncio.to_thread(self._write, at, block)
                        at += len(block)
                if at != start + length:
                    raise OSError(f"{at - start} bytes instead of {length}")
                await asyncio.to_thread(self._note, number)

        await together(work() for _ in range(at_once))
        await asyncio.to_thread(self._finish)

    def _missing(self) -> list[int]:
        numbers = range(-(-self._size // self._part))
        written: set[int] = set()
        if self.path.exists():
            with contextlib.suppress(FileNotFoundError):
                # The last line may have been cut short.
                lines = self._list.read_text().split("\n")[:-1]
                written = {int(line) for line in lines if line.isdecimal()}
        else:
            self._list.unlink(missing_ok=True)
            self.path.touch()
        return [number for number in numbers if number not in written]

    def _write(self, start: int, data: bytes | memoryview) -> None:
        with self.path.open("r+b", buffering=0) as file:
            view = memoryview(data)
            while view:
                written = os.pwrite(file.fileno(), view, start)
                view, start = view[written:], start + written

    def _note(self, number: int) -> None:
        with self._list.open("a") as done:
            done.write(f"{number}\n")

    def _finish(self) -> None:
        self.path.replace(self._target)
        self._list.unlink(missing_ok=True)
