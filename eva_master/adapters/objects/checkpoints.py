"""Checkpoints and outputs in the object store, as the control loop asks for them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future

import structlog

from eva_master.adapters.objects import outputs, removals
from eva_master.model.actions import FindExpired, ListCheckpoints, PlaceOutputs, RemoveResults
from eva_master.model.events import (
    CheckpointsListed,
    OutputsPlaced,
    ResultsExpired,
    ResultsRemoved,
)
from eva_master.ports import Clock, Inbox, ObjectStore
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import JobId, Millis, RunId

_NUMBER = re.compile(r"[0-9]{8,16}")
_MOST_GENERATION = 2**53 - 1
"""Largest number of a generation: agents store none that is larger."""

Ended = Callable[[Millis, Millis, int], tuple[Sequence[JobId], Millis]]
"""Finds jobs that ended after a time and up to another one, about so many, the earliest first;
returns them with the time up to which there are no others."""

log = structlog.get_logger(__name__)


class StoredCheckpoints:
    """Implements `eva_master.ports.Checkpoints`. Create it in the asyncio thread.

    Args:
        store: Where workers keep checkpoints.
        inbox: Where the answers are posted.
        clock: The time of removals.
        ended: Finds jobs by the time of their end.
    """

    def __init__(self, store: ObjectStore, inbox: Inbox, clock: Clock, ended: Ended) -> None:
        self._store = store
        self._inbox = inbox
        self._clock = clock
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._pending: set[Future[None]] = set()
        self._placing: set[RunId] = set()
        self._removing: set[JobId] = set()

    def request(self, request: ListCheckpoints) -> None:
        """See `eva_master.ports.Checkpoints.request`; any thread may call it."""
        self._begin(self._answer(request))

    def place(self, request: PlaceOutputs) -> None:
        """See `eva_master.ports.Checkpoints.place`; any thread may call it."""
        self._begin(self._place(request))

    def remove(self, request: RemoveResults) -> None:
        """See `eva_master.ports.Checkpoints.remove`; any thread may call it."""
        self._begin(self._remove_results(request))

    def expired(self, request: FindExpired) -> None:
        """See `eva_master.ports.Checkpoints.expired`; any thread may call it."""
        self._begin(self._find_expired(request))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        if self._loop.is_closed():
            work.close()
            return
        pending = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._pending.add(pending)
        pending.add_done_callback(self._pending.discard)

    async def _remove_results(self, request: RemoveResults) -> None:
        job = request.job
        if job in self._removing:
            return
        self._removing.add(job)
        error = ""
        try:
            await removals.remove(self._store, job, request.by, self._clock.now())
        except EvaError as failure:
            error = failure.message
        except Exception as failure:
            error = repr(failure)
        finally:
            self._removing.discard(job)
        if error:
            log.warning("results not removed", job=job, error=error)
        else:
            log.info("results removed", job=job, by=request.by or "results_kept")
        self._inbox.post(ResultsRemoved(job, error))

    async def _find_expired(self, request: FindExpired) -> None:
        wanted = request.after_ms, request.until_ms, request.most
        try:
            jobs, until = await asyncio.to_thread(self._ended, *wanted)
        except EvaError as failure:
            log.warning("ended jobs not found", error=failure.message)
            return
        self._inbox.post(ResultsExpired(tuple(jobs), until))

    async def _place(self, request: PlaceOutputs) -> None:
        if request.run in self._placing:
            return
        self._placing.add(request.run)
        error = ""
        try:
            await outputs.place(self._store, request.run, request.own)
        except EvaError as failure:
            error = failure.message
        except Exception as failure:
            # Whatever it is: the control loop asks again, and the user is told why.
            error = repr(failure)
        finally:
            self._placing.discard(request.run)
        if error:
            log.warning("outputs not placed", run=request.run, error=error)
        self._inbox.post(OutputsPlaced(request.run, error))

    async def _answer(self, request: ListCheckpoints) -> None:
        error = ""
        generations: list[tuple[RunId, tuple[int, ...]]] = []
        try:
            for run in request.runs:
                last = -1 if run in request.discard else request.give_up_after
                generations.append((run, await self._generations(run, last)))
            for origin in request.origins:
                generations.append((origin, await self._generations(origin, None)))
        except EvaError as failure:
            error = failure.message
        except Exception as failure:
            # A request without an answer would block the gang for ever.
            error = repr(failure)
        if error:
            log.warning("checkpoints not listed", job=request.job, error=error)
            generations = []
        self._inbox.post(CheckpointsListed(request.number, request.job, tuple(generations), error))

    async def _generations(self, run: RunId, last: int | None) -> tuple[int, ...]:
        """The complete generations, after removal of those that are given up."""
        prefix = f"jobs/{run}/checkpoints"
        stored: dict[int, list[str]] = {}
        for key in await self._store.list(prefix):
            name = key.removeprefix(f"{prefix}/").partition("/")[0]
            if _NUMBER.fullmatch(name) and int(name) <= _MOST_GENERATION:
                stored.setdefault(int(name), []).append(key)
        going = [] if last is None else [number for number in stored if number > last]
        for number in going:
            await self._remove(f"{prefix}/{number:08d}/manifest.json", stored.pop(number))
        return tuple(
            number
            for number in sorted(stored)
            if f"{prefix}/{number:08d}/manifest.json" in stored[number]
        )

    async def _remove(self, manifest: str, keys: list[str]) -> None:
        """Delete a generation, the manifest first: without it the generation does not exist."""
        await self._store.delete(manifest)
        for key in keys:
            await self._store.delete(key)
