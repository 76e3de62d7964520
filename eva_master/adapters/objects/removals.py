"""Removes what jobs have stored, and remembers of which jobs it was removed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from eva_master.ports import ObjectStore
from eva_wire.values.errors import InvalidJob, NotFound
from eva_wire.values.ids import JobId, Millis

_PARALLEL = 16


@dataclass(frozen=True, slots=True)
class Removed:
    """A note of a removal, which stays in the store.

    Attributes:
        by: The user who had it done; empty for the end of `results_kept`.
        at_ms: When it began.
    """

    by: str
    at_ms: Millis

    @property
    def words(self) -> str:
        """When and by whom, for users."""
        day = f"{datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%d}"
        return f"on {day} by {self.by}" if self.by else f"on {day}, after `results_kept`"


def note_key(job: JobId) -> str:
    """Key of the note that a job's files were removed."""
    return f"removed/{job}"


async def removal_of(store: ObjectStore, job: JobId) -> Removed | None:
    """The removal of what a job had stored; `None` if it was not removed.

    Raises:
        StorageError: The store failed.
    """
    try:
        note = json.loads(await store.get(note_key(job)))
        return Removed(str(note["by"]), Millis(int(note["at_ms"])))
    except NotFound:
        return None
    except (ValueError, TypeError, KeyError):
        return Removed("", Millis(0))


async def require_kept(store: ObjectStore, jobs: Iterable[JobId]) -> None:
    """Check that what ended jobs have stored is still there.

    Raises:
        InvalidJob: The files were removed.
        StorageError: The store failed.
    """
    for job in dict.fromkeys(jobs):
        if (removed := await removal_of(store, job)) is not None:
            raise InvalidJob(
                f"what {job} had stored was removed {removed.words}",
                hint=f"submit {job}'s job file again",
            )


async def remove(store: ObjectStore, job: JobId, by: str, now: Millis) -> None:
    """Remove all that a job's tasks have stored. A repetition removes what has come since.

    The note is written first: what is left after an interruption is known to be of no use.

    Raises:
        StorageError: The store failed; some may be left.
    """
    if await store.find(note_key(job)) is None:
        note = json.dumps({"by": by, "at_ms": int(now)}).encode()
        await store.put(note_key(job), note)
    places = asyncio.Semaphore(_PARALLEL)

    async def delete(key: str) -> None:
        async with places:
            await store.delete(key)

    async for part in store.below(f"jobs/{job}"):
        await asyncio.gather(*(delete(stored.key) for stored in part))
