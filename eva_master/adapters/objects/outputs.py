"""Puts the outputs of an extra run that has succeeded in the place of its task's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

from eva_master.ports import ObjectStore
from eva_wire.values.ids import RunId

_PIECE_BYTES = 8 * 1024 * 1024


def outputs_prefix(run: RunId) -> str:
    """Key prefix of a task run's outputs."""
    return f"jobs/{run}/outputs"


async def place(store: ObjectStore, run: RunId, own: RunId) -> None:
    """Copy a run's outputs over those of its task's own run, and remove what else is there.

    The source stays in place, so repeating the copy from the beginning gives the same result after
    any interruption.

    Args:
        store: The store.
        run: Run whose outputs count.
        own: Run whose outputs are replaced. Nothing else may write there.

    Raises:
        StorageError: The store failed.
    """
    source, target = outputs_prefix(run), outputs_prefix(own)
    names = {key.removeprefix(f"{source}/") for key in await store.list(source)}
    for key in await store.list(target):
        if key.removeprefix(f"{target}/") not in names:
            await store.delete(key)
    for name in sorted(names):
        await store.put(f"{target}/{name}", _pieces(store, f"{source}/{name}"))


async def _pieces(store: ObjectStore, key: str) -> AsyncIterator[bytes]:
    offset = 0
    while piece := await store.get(key, offset=offset, length=_PIECE_BYTES):
        yield piece
        offset += len(piece)
