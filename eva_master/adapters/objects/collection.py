"""Collects garbage of the object store: uploads that no job needs, and what else is left over."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Collection, Iterator
from dataclasses import dataclass, replace

from eva_master.adapters.objects.blobs import blob_key
from eva_master.adapters.objects.promises import YOUNG_MS, Promises
from eva_master.ports import Clock, ObjectStore
from eva_master.ports.reading import Archive
from eva_wire.values.errors import InvalidKey, NotFound
from eva_wire.values.ids import JobId, Millis

_JOBS_AT_ONCE = 200
_REMOVED = "removed"
_CLOCK = "clock"
_UPLOADS = ("uploads", "blobs")
_TOPS = (*_UPLOADS, "jobs", "promises", _REMOVED)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Sums of a collection.

    Attributes:
        uploads: Files of working directories and build contexts, and tables.
        uploads_bytes: Their bytes.
        leftovers: Files that came after all files of their job had been removed, and partial files
            of uploads that were cut off.
        leftovers_bytes: Their bytes.
    """

    uploads: int = 0
    uploads_bytes: int = 0
    leftovers: int = 0
    leftovers_bytes: int = 0

    def with_leftovers(self, sizes: Collection[int]) -> Garbage:
        """Sums with more leftovers, of some sizes in bytes."""
        size = self.leftovers_bytes + sum(sizes)
        return replace(self, leftovers=self.leftovers + len(sizes), leftovers_bytes=size)


async def collect(
    store: ObjectStore, archive: Archive, promises: Promises, clock: Clock, *, dry_run: bool
) -> AsyncGenerator[Garbage]:
    """Remove garbage, or only count it.

    Uploads stay that a job names whose files were not removed, active or ended, that a client was
    promised, or that are younger than `YOUNG_MS`, as do partial files.

    Args:
        store: The store.
        archive: Has all jobs.
        promises: Uploads that clients count on.
        clock: The loop's time.
        dry_run: Whether nothing is removed.

    Yields:
        The sums so far, once for each part of a listing.

    Raises:
        StorageError: The store or the journal failed.
    """
    removed = {key.partition("/")[2] for key in await store.list(_REMOVED)}
    # Promises first: a job that is submitted from now on names what was promised before or is.
    kept = await promises.written(clear=not dry_run)
    kept |= await _named(store, archive, removed)
    # A clock that was set makes no file old: neither the store's, nor that of the loop's time.
    least = min(clock.now(), await _time_of(store)) - YOUNG_MS
    sums = Garbage()
    for top in _UPLOADS:
        async for part in store.below(top):
            for stored in part:
                name = _blob_name(stored.key)
                if name is None or name in kept or stored.modified_ms >= least:
                    continue
                if promises.holds(name) or not (dry_run or await promises.remove(name)):
                    continue
                size = sums.uploads_bytes + stored.size
                sums = replace(sums, uploads=sums.uploads + 1, uploads_bytes=size)
            yield sums
    if removed:
        async for part in store.below("jobs"):
            late = [stored for stored in part if stored.key.split("/", 2)[1] in removed]
            if not dry_run:
                for stored in late:
                    await store.delete(stored.key)
            sums = sums.with_leftovers([stored.size for stored in late])
            yield sums
    for top in _TOPS:
        sums = sums.with_leftovers(await store.clear_partial(top, least, dry_run=dry_run))
        yield sums


async def _time_of(store: ObjectStore) -> Millis:
    """The store's present time, which its objects are dated by."""
    own = f"{_CLOCK}/{uuid.uuid4().hex}"
    await store.put(own, b"")
    times = await store.modified(_CLOCK)
    for key, at in times.items():
        # Others of now belong to collections beside this one.
        if key == own or at < times[own] - YOUNG_MS:
            await store.delete(key)
    return Millis(times[own])


async def _named(store: ObjectStore, archive: Archive, removed: set[str]) -> set[str]:
    """Names of the blobs that jobs need whose files were not removed."""
    lists: set[str] = set()
    before: JobId | None = None
    while page := await asyncio.to_thread(archive.page_of_jobs, before, _JOBS_AT_ONCE):
        wanted = [job for job in page if job not in removed]
        records = await asyncio.to_thread(archive.records_of_jobs, wanted)
        for record in records.values():
            lists |= record.job.spec.uploads
        before = page[-1]
    names = set(lists)
    for name in lists:
        names.update(await _files_of(store, name))
    return names


async def _files_of(store: ObjectStore, name: str) -> set[str]:
    """Blobs that a list of files names; none of a table, or of a list that is gone."""
    try:
        data = await store.get(blob_key(name))
    except NotFound:
        return set()
    owner = name.rpartition("/")[0]
    return {f"{owner}/{digest}" if owner else digest for digest in _digests(data)}


def _digests(data: bytes) -> Iterator[str]:
    try:
        files = json.loads(data)["files"]
        yield from [str(file["sha256"]) for file in files]
    except (ValueError, TypeError, KeyError, RecursionError):
        return


def _blob_name(key: str) -> str | None:
    """The name of the blob that an object is; `None` if it is none."""
    names = key.split("/")
    name = f"{names[1]}/{names[-1]}" if names[0] == "uploads" else names[-1]
    try:
        return name if blob_key(name) == key else None
    except InvalidKey:
        return None
