"""Job files are parsed on a few threads of their own, one file of a user at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from eva_master.adapters.resolving.parse import parse_job
from eva_master.model.job import JobSpec
from eva_wire.text.cancellation import Cancellation

_THREADS = 2
"""A file that is as large as it may be takes a second."""


class JobParser:
    """Parses job files beside all other calls; what nobody waits for any more is given up.

    Only the asyncio thread uses it.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="parser")
        self._turns: dict[str, _OneAtATime] = {}

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait until nothing else of a user is parsed or planned, and keep it so meanwhile."""
        turn = self._turns.setdefault(owner, _OneAtATime())
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[owner]

    async def parse(self, text: str, **details: Any) -> JobSpec:
        """Parse a job file in the user's turn; see `eva_wire.jobfile.parse_job`.

        Raises:
            InvalidJob: The file cannot be accepted.
        """
        cancellation = Cancellation()
        work = partial(parse_job, text, cancelled=cancellation, **details)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            cancellation.cancel()


class _OneAtATime:
    """One at a time.

    Attributes:
        wanted: How many have their turn, or wait for it.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0
