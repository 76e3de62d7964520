"""Checkpoint generations in the object store: which exist, and which may be deleted.

A generation exists as long as its manifest, which is written last and removed first.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from eva_worker.files.objects import Objects

MOST_GENERATION = 2**53 - 1
"""Largest number of a generation: larger ones are not exact everywhere they are kept."""

_NUMBER = re.compile(r"[0-9]{8,16}")
_GENERATIONS_KEPT = 2
"""Generations kept: the newest, and the one before in case the newest proves unusable."""


def checkpoints_prefix(run: str) -> str:
    """Key prefix of a task run's generations in the object store."""
    return f"jobs/{run}/checkpoints"


def checkpoint_key(run: str, generation: int) -> str:
    """Key prefix of one generation in the object store."""
    return f"{checkpoints_prefix(run)}/{generation:08d}"


def generation_of(name: str) -> int | None:
    """The generation whose directory has this name, `None` if none can have it."""
    number = int(name) if _NUMBER.fullmatch(name) else 0
    return number if 0 < number <= MOST_GENERATION and name == f"{number:08d}" else None


def newest_in_common(own: Collection[int], others: Iterable[Collection[int]]) -> int:
    """The newest generation that every publishing member of a gang has, 0 for none.

    Args:
        own: The complete generations of one member.
        others: Generations of each other member. A member that has stored none does not publish
            any.
    """
    return max(set(own).intersection(*(those for those in others if those)), default=0)


def obsolete(own: Collection[int], keep: Collection[int]) -> set[int]:
    """Generations that no attempt will start from: complete, not the newest, not in `keep`."""
    return set(own) - {*sorted(own)[-_GENERATIONS_KEPT:], *keep}


async def newest(objects: Objects, run: str) -> int:
    """The newest complete generation of a task run, 0 for none; raises `StoreUnavailable`."""
    return max(_complete(run, await _stored(objects, run)), default=0)


async def prune(
    objects: Objects, run: str, gang: Sequence[str] = (), keep: Collection[int] = ()
) -> int:
    """Remove the generations that no attempt will start from, complete or not.

    A gang starts from the newest generation that all publishing members have. So a member keeps
    what the others also have until there is a newer one that all have, however far behind they are.

    Args:
        objects: The store.
        run: The task run whose generations these are.
        gang: The other members of its gang.
        keep: Generations to keep in any case: the one that the attempt began from, since a member
            that starts late may have to fetch it; and the last return value of this function, since
            another member that looked a moment earlier relies on it.

    Returns:
        The newest generation in common, 0 for none.

    Raises:
        StoreUnavailable: The store failed.
    """
    stored = await _stored(objects, run)
    own = _complete(run, stored)
    others = await asyncio.gather(*(_stored(objects, member) for member in gang))
    common = newest_in_common(own, map(_complete, gang, others))
    torn = {number for number in stored if number not in own and number < max(own, default=0)}
    for number in sorted(torn | obsolete(own, {common, *keep})):
        await _remove(objects, stored[number])
    return common


async def _stored(objects: Objects, run: str) -> dict[int, list[str]]:
    """The stored keys of each generation, complete or not."""
    prefix = checkpoints_prefix(run)
    keys: dict[int, list[str]] = {}
    async for key in objects.list(prefix):
        number = generation_of(key.removeprefix(f"{prefix}/").partition("/")[0])
        if number is not None:
            keys.setdefault(number, []).append(key)
    return keys


def _complete(run: str, stored: Mapping[int, Sequence[str]]) -> set[int]:
    return {
        number
        for number, keys in stored.items()
        if f"{checkpoint_key(run, number)}/manifest.json" in keys
    }


async def _remove(objects: Objects, keys: Sequence[str]) -> None:
    for key in sorted(keys, key=lambda key: "/files/" in key):
        await objects.delete(key)
