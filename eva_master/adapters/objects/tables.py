"""Tables of arrays in the object store: checked at submission, a row read at each start."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from eva_master.adapters.objects.blobs import blob_key
from eva_master.ports import ObjectStore
from eva_wire.jobfile.table import MOST_TABLE_BYTES, Rows, Table, read_table

_MOST_KEPT = 128 * 1024 * 1024
"""Bytes of tables that are kept in memory."""
_AT_ONCE = 2
"""Tables that are read at the same time; the largest takes up to 100 MB meanwhile."""


class TableReader:
    """Reads tables that were submitted, few at a time, since each takes memory.

    Args:
        store: The store that has the tables.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def read(self, name: str, *, file_name: str, names: str = "") -> Table:
        """Read a table that was uploaded, and check it.

        Args:
            name: Name of its blob; see `eva_master.adapters.objects.blobs.reference`.
            file_name: Name of the file, for messages.
            names: Column that names the tasks; empty for the usual one.

        Raises:
            InvalidJob: The table cannot be used.
            NotFound: There is no such blob.
        """
        async with self._room:
            data = await _content(self._store, name)
            return await asyncio.to_thread(read_table, data, file_name=file_name, names=names)


async def _content(store: ObjectStore, name: str) -> bytes:
    # A byte more tells a table that is too large from the largest one.
    return await store.get(blob_key(name), length=MOST_TABLE_BYTES + 1)


class TaskTables:
    """Rows of tables, of which those are in memory that were used last.

    Only the asyncio thread uses it.

    Args:
        store: The store that has the tables.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tables: dict[str, asyncio.Task[Rows]] = {}

    async def row(self, name: str, index: int) -> Mapping[str, str]:
        """The variables of a task.

        Args:
            name: Name of the table's blob.
            index: Index of the task.

        Raises:
            NotFound: The table is not stored any more.
            InvalidJob: The table is damaged, or has no such row.
            StorageError: The store failed.
        """
        reading = self._tables.pop(name, None) or asyncio.create_task(self._read(name))
        self._tables[name] = reading
        try:
            rows = await asyncio.shield(reading)
        except BaseException:
            if reading.done() and self._tables.get(name) is reading:
                del self._tables[name]
            raise
        self._forget_some()
        return rows.row(index)

    async def _read(self, name: str) -> Rows:
        async with self._room:
            return await asyncio.to_thread(Rows, await _content(self._store, name))

    def _forget_some(self) -> None:
        """Drop the tables that were used longest ago, as far as all take too much memory."""
        room = _MOST_KEPT
        for name, reading in reversed([*self._tables.items()]):
            if not reading.done() or reading.cancelled() or reading.exception() is not None:
                continue
            room -= reading.result().size
            if room < 0 and name != next(reversed(self._tables)):
                del self._tables[name]
