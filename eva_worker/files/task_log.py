"""Follows a task's log as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from eva_worker.files.upload import read_data

_CHUNK = 64 << 10
_POLL_S = 0.2


async def follow(
    path: Path, offset: int, *, ended: Callable[[], bool]
) -> AsyncIterator[tuple[int, bytes]]:
    """Read a log to its end and continue as it grows.

    Args:
        path: The log file; it need not exist yet.
        offset: First byte wanted. Bytes that are no longer on the disk are skipped; the offsets
            show it.
        ended: Tells whether the log is complete.

    Yields:
        Offset and bytes of each piece.
    """
    while True:
        last = ended()  # Asked first, so that the read below finds all that was written.
        while True:
            offset, chunk = await asyncio.to_thread(read_data, path, offset, _CHUNK)
            if not chunk:
                break
            yield offset, chunk
            offset += len(chunk)
        if last:
            return
        await asyncio.sleep(_POLL_S)
