"""The agent's side of an owned node's lease: it renews it, and stops the tasks when it runs out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import structlog

from eva_worker.process import lease

_LOOK_S = 0.5
"""Longest time between two looks at the clock, since a machine may be suspended."""
_ASKS_PER_LEASE = 10
_MOST_S = 15.0
_LONGEST_GRACE_PARTS = 2
"""A task that is stopped for the lease gets its grace period, but no more than a half of it."""

_log = structlog.get_logger()


class Fenced(Protocol):
    """The tasks that run under a lease, see `eva_worker.tasks.registry.Tasks`."""

    def longest_grace_ms(self) -> int:
        """The longest grace period of those that run."""
        ...

    async def stop_all(self, within_ms: int) -> None:
        """Ask all of them to stop within so many milliseconds."""
        ...

    async def kill(self) -> None:
        """Kill all of them; returns when no process of any is left."""
        ...


class LeaseFence:
    """Holds the lease of an owned node. On other workers it does nothing.

    Whatever runs under a lease has stopped when it ends: tasks are asked to stop in time before,
    and killed then. Parents of tasks, and for containers the worker's supervisor, see to the same
    by the same file; so it holds with this agent killed or stopped.

    Args:
        file: Where the lease is.
    """

    def __init__(self, file: Path) -> None:
        self._file = str(file.absolute())
        self._tasks: Fenced | None = None
        self._length_ms = 0
        self._lease: lease.Lease | None = None
        self._stopping = False
        self._fenced = asyncio.Lock()
        self._held = asyncio.Event()

    def watch(self, tasks: Fenced) -> None:
        """Take in which tasks run under the lease; to be called before anything else."""
        self._tasks = tasks

    @property
    def needed(self) -> bool:
        """Whether this worker is an owned node."""
        return self._length_ms > 0

    @property
    def interval_s(self) -> float:
        """Seconds from one request for a lease to the next."""
        return min(_MOST_S, self._length_ms / 1000 / _ASKS_PER_LEASE)

    def configure(self, length_ms: int) -> None:
        """Take in for how long a lease lasts; 0 for a worker that needs none."""
        if length_ms and not self.needed:
            self._lease = lease.read(self._file)
            if self._lease is not None and lease.now_ms() < self._lease[1]:
                self._held.set()
        self._length_ms = length_ms

    def terms(self) -> tuple[str, int] | None:
        """The terms of a start: the file and the epoch; `None` if the task needs no lease."""
        if not self.needed:
            return None
        return self._file, self._lease[0] if self._lease is not None else 0

    async def held(self) -> None:
        """Wait until tasks may be started."""
        if self.needed:
            await self._held.wait()

    async def ask(self) -> int:
        """Begin to ask for a lease; returns what to ask with.

        The answer counts from before the question. If the last lease has run out, everything that
        ran under it is over first.
        """
        while True:
            asked_ms = lease.now_ms()
            if self._lease is None or asked_ms < self._lease[1]:
                return asked_ms
            await self._end()

    def granted(self, asked_ms: int) -> None:
        """Take in a master's word, which answers a question of this session."""
        now = lease.now_ms()
        until_ms = asked_ms + self._length_ms
        if not self.needed or asked_ms > now or until_ms <= now:
            return
        if self._lease is not None and not asked_ms < self._lease[1]:
            return  # The lease in between has run out; the next question sees to that.
        epoch = self._lease[0] if self._lease is not None else now
        try:
            lease.write(self._file, (epoch, until_ms))
        except OSError as error:  # The granted lease goes on to run out.
            _log.error("lease cannot be written down", error=str(error))
            return
        self._lease = epoch, until_ms
        self._stopping = False
        self._held.set()

    async def keep(self) -> None:
        """Stop the tasks in time whenever the lease runs out; does not return."""
        tasks = self._tasks
        assert tasks is not None
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self.needed or self._lease is None or not self._held.is_set():
                continue
            left_ms = self._lease[1] - lease.now_ms()
            grace_ms = min(tasks.longest_grace_ms(), self._length_ms // _LONGEST_GRACE_PARTS)
            if left_ms <= 0:
                await self._end()
            elif left_ms <= grace_ms and not self._stopping:
                self._stopping = True
                _log.error("no master for too long: the tasks are stopped", within_ms=left_ms)
                await tasks.stop_all(left_ms)

    async def _end(self) -> None:
        """Kill what runs, and begin a new epoch."""
        async with self._fenced:
            if self._tasks is None or self._lease is None or lease.now_ms() < self._lease[1]:
                return
            self._held.clear()
            _log.error("no master for too long: no task runs on")
            await self._tasks.kill()
            self._lease = None
