"""Content-addressed blobs and the logs of jobs in the object store."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterable

from eva_master.ports import ObjectStore
from eva_wire.values.errors import DigestMismatch, InvalidKey
from eva_wire.values.users import is_owner

__all__ = ["blob_key", "missing", "put_blob", "reference"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PARALLEL_QUESTIONS = 32


def reference(owner: str, digest: str) -> str:
    """The name of a blob that a user has uploaded, for orders to agents and the journal.

    Users have blobs of their own: a digest alone opens nobody's files.
    """
    return f"{owner}/{digest}"


def blob_key(name: str) -> str:
    """The key of a blob.

    Args:
        name: See `reference`. Blobs of earlier versions have the bare digest of their content as
            their name: SHA-256 in lower-case hexadecimal.

    Raises:
        InvalidKey: The name is not a blob's.
    """
    owner, slash, digest = name.rpartition("/")
    if not _DIGEST.fullmatch(digest) or (slash and not is_owner(owner)):
        raise InvalidKey(f"{digest!r} is no SHA-256 digest")
    return f"uploads/{owner}/{digest[:2]}/{digest}" if slash else f"blobs/{digest[:2]}/{digest}"


async def missing(store: ObjectStore, names: Iterable[str]) -> list[str]:
    """The names that have no blob yet, each once, in order.

    Raises:
        InvalidKey: One of them is no name of a blob.
    """
    places = asyncio.Semaphore(_PARALLEL_QUESTIONS)

    async def absent(key: str) -> bool:
        async with places:
            return await store.size(key) is None

    keys = {name: blob_key(name) for name in names}
    answers = await asyncio.gather(*map(absent, keys.values()))
    return [name for name, gone in zip(keys, answers, strict=True) if gone]


async def put_blob(store: ObjectStore, name: str, chunks: AsyncIterator[bytes]) -> None:
    """Store a blob if its content matches its digest.

    Raises:
        InvalidKey: The name is not a blob's.
        DigestMismatch: The content has another digest; nothing was stored.
    """
    key, digest = blob_key(name), name.rpartition("/")[2]

    async def verified() -> AsyncIterator[bytes]:
        seen = hashlib.sha256()
        async for chunk in chunks:
            seen.update(chunk)
            yield chunk
        # The put is atomic: an error raised before its end stores nothing.
        if seen.hexdigest() != digest:
            raise DigestMismatch(
                f"blob {digest}: the content has digest {seen.hexdigest()}",
                hint="it was changed or damaged in transit; send it again",
            )

    await store.put(key, verified())
