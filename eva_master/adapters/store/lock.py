"""Makes sure that one master at a time has a journal open."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from eva_wire.values.errors import JournalInUse


class ProcessLock:
    """A lock file that this process holds until it releases it or ends in any way.

    A record lock rather than ``flock``: child processes of the master do not inherit it, so that a
    planner process which outlives a killed master keeps no successor out. The lock excludes other
    processes, not users of one path within a process.

    Raises:
        JournalInUse: Another process holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise JournalInUse(
                f"{path}: another master (process {holder}) has this journal open",
                hint="stop that master first, or give this one a state directory of its own",
            ) from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock. The file stays, because another process may be about to lock it."""
        os.close(self._file)
