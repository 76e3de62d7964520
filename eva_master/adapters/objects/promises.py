"""Uploads that clients count on: files of which the master has said that they are there.

A client that is told that files are stored does not send them, and submits a job that names them.
So `eva gc` leaves them for `KEPT_MS` more. Files that were stored lately stay anyway, and only
promises about older ones are written down.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable
from contextlib import suppress

from eva_master.adapters.objects.blobs import blob_key
from eva_master.ports import Clock, ObjectStore
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import Millis

KEPT_MS = 86_400_000
"""How long a promise lasts."""
YOUNG_MS = 2 * KEPT_MS
"""Files that were stored within this time are never garbage."""
_PREFIX = "promises"
_PARALLEL = 32


class Promises:
    """Blobs that clients were promised, by their names. Only the asyncio thread uses it.

    Args:
        store: Has the blobs, and the promises of masters before.
        clock: The present time.
    """

    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._made: dict[str, Millis] = {}
        self._going: dict[str, asyncio.Event] = {}

    async def missing(self, names: Iterable[str]) -> list[str]:
        """The names that have no blob yet, each once, in order; the others are promised.

        Raises:
            InvalidKey: One of them is no name of a blob.
            StorageError: The store failed; nothing is promised.
        """
        keys = {name: blob_key(name) for name in names}
        now = self._clock.now()
        places = asyncio.Semaphore(_PARALLEL)

        async def stored_ms(name: str) -> int | None:
            async with places:
                if name in self._going:
                    return None
                # Before the look, so that no collection takes it meanwhile.
                self._made[name] = now
                stored = await self._store.find(keys[name])
            if stored is None or stored.modified_ms >= now - KEPT_MS:
                self._made.pop(name, None)  # A young file stays anyway.
            return None if stored is None else stored.modified_ms

        times = dict(zip(keys, await asyncio.gather(*map(stored_ms, keys)), strict=True))
        old = [name for name, ms in times.items() if ms is not None and ms < now - KEPT_MS]
        if old:
            key = f"{_PREFIX}/{now:016d}-{uuid.uuid4().hex}"
            await self._store.put(key, json.dumps(old).encode())
        return [name for name, ms in times.items() if ms is None]

    async def settled(self, name: str) -> None:
        """Wait until a blob is not being removed any more."""
        while (event := self._going.get(name)) is not None:
            await event.wait()

    async def remove(self, name: str) -> bool:
        """Remove a blob unless it is promised; returns whether it was removed."""
        if self.holds(name):
            return False
        self._going[name] = event = asyncio.Event()
        try:
            await self._store.delete(blob_key(name))
        finally:
            del self._going[name]
            event.set()
        return True

    def holds(self, name: str) -> bool:
        """Whether this master has promised a blob."""
        made = self._made.get(name)
        return made is not None and made > self._clock.now() - KEPT_MS

    async def written(self, *, clear: bool) -> set[str]:
        """Names that were promised, by this master or one before it.

        Args:
            clear: Whether promises that are over are removed from the store.
        """
        promised: set[str] = set()
        least = self._clock.now() - KEPT_MS
        for key in await self._store.list(_PREFIX):
            if _time_of(key) < least:
                if clear:
                    await self._store.delete(key)
                continue
            with suppress(NotFound, ValueError, TypeError):
                promised.update(map(str, json.loads(await self._store.get(key))))
        return promised


def _time_of(key: str) -> int:
    """When a promise was made, by its key; one that is no promise's never ends."""
    digits = key.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isdecimal() else 1 << 62
