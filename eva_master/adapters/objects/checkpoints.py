"""Tells the control loop which checkpoints are stored."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import structlog

from eva_master.model.actions import ListCheckpoints
from eva_master.model.errors import StorageError
from eva_master.model.events import CheckpointsListed
from eva_master.model.ids import CopyId
from eva_master.ports import Inbox, ObjectStore

log = structlog.get_logger(__name__)


class StoredCheckpoints:
    """Implements `eva_master.ports.Checkpoints`; to be made in the asyncio thread.

    Args:
        store: Where workers keep checkpoints.
        inbox: Gets the answers.
    """

    def __init__(self, store: ObjectStore, inbox: Inbox) -> None:
        self._store = store
        self._inbox = inbox
        self._loop = asyncio.get_running_loop()
        self._pending: set[Future[None]] = set()

    def request(self, request: ListCheckpoints) -> None:
        """See `eva_master.ports.Checkpoints.request`; any thread may call it."""
        if self._loop.is_closed():
            return
        pending = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        self._pending.add(pending)
        pending.add_done_callback(self._pending.discard)

    async def _answer(self, request: ListCheckpoints) -> None:
        try:
            lists = await asyncio.gather(*map(self._generations, request.copies))
        except StorageError as error:
            log.warning("checkpoints not listed", job=request.job, error=error.message)
            answer = CheckpointsListed(request.job, request.attempt, (), error=error.message)
        else:
            pairs = tuple(zip(request.copies, lists, strict=True))
            answer = CheckpointsListed(request.job, request.attempt, pairs)
        self._inbox.post(answer)

    async def _generations(self, copy: CopyId) -> tuple[int, ...]:
        """Those with a manifest: it is written last and deleted first."""
        prefix = f"jobs/{copy}/checkpoints"
        found = []
        for key in await self._store.list(prefix):
            generation, _, rest = key.removeprefix(f"{prefix}/").partition("/")
            if rest == "manifest.json" and generation.isdecimal():
                found.append(int(generation))
        return tuple(sorted(found))
