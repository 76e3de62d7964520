"""Sends files to the master: several at once, and the rest again once a master is back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from eva_client.rpc.retry_wait import RetryWait
from eva_wire.values.errors import Busy, DigestMismatch, Unreachable

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is to be sent.

    Attributes:
        digest: SHA-256 of its content, in hexadecimal.
        source: The content, or where it is.
        size: In bytes.
    """

    digest: str
    source: bytes | Path
    size: int


def send(
    put: Callable[[Upload], None],
    uploads: Iterable[Upload],
    sent: Callable[[Upload], None],
    patience: RetryWait,
) -> list[Upload]:
    """Send files, and those again that a master which went away has not got.

    Args:
        put: Sends one; any thread calls it.
        uploads: The files.
        sent: Told of each that was sent, in the calling thread.
        patience: Waits for a master that is away.

    Returns:
        The files that were changed or removed meanwhile.

    Raises:
        Unreachable, Busy: The master was away for too long.
    """
    rest, changed = dict.fromkeys(uploads), list[Upload]()
    failures: list[Unreachable | Busy] = []

    def done(upload: Upload) -> bool:
        """Send a file; returns whether that was done. None is tried at a master that is away."""
        if not failures:
            try:
                put(upload)
                return True
            except (Unreachable, Busy) as error:
                failures.append(error)
        return False

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="eva-upload") as pool:
        while rest:
            before = len(rest)
            running = {pool.submit(done, upload): upload for upload in rest}
            try:
                for finished in as_completed(running):
                    try:
                        if not finished.result():
                            continue
                        sent(running[finished])
                    except (DigestMismatch, OSError):
                        changed.append(running[finished])
                    del rest[running[finished]]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            if failures:
                if len(rest) < before:
                    patience.restore()
                patience.pause(failures[0])
                failures.clear()
    return changed
