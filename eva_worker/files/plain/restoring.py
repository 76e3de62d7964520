"""Restores a copy of plain files into ``$EVA_CHECKPOINT_DIR``."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from eva_worker.at_once import each
from eva_worker.errors import Corrupt
from eva_worker.files.beneath import Directory, DirectoryEntry, remove_tree
from eva_worker.files.download import FileEntry
from eva_worker.files.objects import Objects
from eva_worker.files.plain import contents, copies
from eva_worker.files.plain.contents import Contents
from eva_worker.files.plain.copies import Copy
from eva_worker.files.plain.uploads import NOTHING, Origin
from eva_worker.files.room import require_room
from eva_worker.orders import TaskKey

_ASIDE = ".tmp-restore-plain"
_LAST_ATTEMPT = 2**31
"""No attempt of an ended job is as late."""


async def restore(
    objects: Objects, key: TaskKey, source: str, gang: Sequence[str] | None, target: Path
) -> Origin:
    """Restore the copy that an attempt begins from, if there is one.

    Args:
        objects: The store.
        key: The attempt.
        source: The task run whose copies a task on its own begins from.
        gang: The other members of its gang, `None` for a task on its own.
        target: ``$EVA_CHECKPOINT_DIR``. Plain files of an earlier try are replaced.

    Returns:
        Origin of what was restored.

    Raises:
        Missing, Corrupt, StoreUnavailable, BadOrder: The download failed.
        TooLarge, InstanceFailed: The disk has no room for it.
    """
    choice = await _chosen(objects, key, source, gang)
    if choice is None:
        return NOTHING
    run, copy = choice
    held = contents.read(await objects.get(copies.list_key(run, copy)))
    directory = await asyncio.to_thread(lambda: Directory.at(target, make=True))
    with directory:
        name = _name_aside(held)
        with await asyncio.to_thread(lambda: directory.directory(name, make=True)) as aside:
            sizes = sum(entry.size for entry in held.files)
            await asyncio.to_thread(require_room, aside, sizes)
            await each(held.files, lambda entry: _fetch(objects, run, entry, aside))
            await asyncio.to_thread(_finish, aside, held)
            await asyncio.to_thread(_move, aside, directory)
        os.rmdir(name, dir_fd=directory.fd)
        await asyncio.to_thread(_set_modes, directory, held)
        listing = await asyncio.to_thread(contents.listed, directory)
    own = run == key.run
    number = copy.number if own else 0
    return Origin(number, copy.name if own else "", contents.state_of(listing), held.steps)


async def restore_earlier(objects: Objects, run: str, members: int, target: Path) -> Origin:
    """Restore the copy that a task of an ended job would begin from, if there is one.

    Args:
        objects: The store.
        run: The task run of the ended job.
        members: How many tasks its gang had, 1 for a task on its own.
        target: ``$EVA_CHECKPOINT_DIR``.

    Returns:
        Origin of what was restored. Copies are counted anew.

    Raises:
        Missing, Corrupt, StoreUnavailable, BadOrder: The download failed.
        TooLarge, InstanceFailed: The disk has no room for it.
    """
    job = run.rpartition("/")[0]
    gang = None  # A task on its own may have any index.
    if members > 1:
        gang = [name for rank in range(members) if (name := f"{job}/{rank}") != run]
    key = TaskKey(run, _LAST_ATTEMPT)
    return replace(await restore(objects, key, run, gang, target), number=0, name="")


async def _chosen(
    objects: Objects, key: TaskKey, source: str, gang: Sequence[str] | None
) -> tuple[str, Copy] | None:
    if gang is None:
        copy = copies.newest(await _stored(objects, source))
        return None if copy is None else (source, copy)
    job = key.run.rpartition("/")[0]
    members = {key.run, *gang}
    stored = {member: await _stored(objects, member) for member in sorted(members)}
    # The members of a gang may have been more.
    most = max((copy.members for of_run in stored.values() for copy in of_run), default=0)
    for member in {f"{job}/{rank}" for rank in range(most)} - members:
        stored[member] = await _stored(objects, member)
    return copies.chosen(key.run, job, key.attempt, stored)


async def _stored(objects: Objects, run: str) -> list[Copy]:
    keys = [key async for key in objects.list(copies.plain_prefix(run))]
    return copies.copies_in(run, keys)


async def _fetch(objects: Objects, run: str, entry: FileEntry, aside: Directory) -> None:
    """Download a file, unless an earlier try has."""
    parent, _, name = entry.path.rpartition("/")
    above = await asyncio.to_thread(lambda: aside.directory(parent, make=True)) if parent else aside
    place = DirectoryEntry(above, name)
    if await asyncio.to_thread(_digest, place) != entry.sha256:
        await objects.fetch(copies.blob_key(run, entry.sha256), place, size=entry.size)
        digest = await asyncio.to_thread(_digest, place)
        if digest != entry.sha256:
            raise Corrupt(f"{entry.path[:200]!r}: digest {digest} instead of {entry.sha256}")


def _digest(place: DirectoryEntry) -> str:
    """The digest of a file, empty if there is none."""
    with contextlib.suppress(OSError), place.directory.file(place.name) as file:
        return file.digest()
    return ""


def _name_aside(held: Contents) -> str:
    """The directory in which a copy is put together: nothing at the top of it has this name."""
    name = _ASIDE
    top = {path.partition("/")[0] for path in held.paths}
    while name in top:
        name += "-"
    return name


def _finish(aside: Directory, held: Contents) -> None:
    """Make links and directories, and set the modes and times of files."""
    wanted = {entry.path for entry in held.files}
    _remove_others(aside, wanted)
    for path in held.directories:
        aside.directory(path, make=True).close()
    for path, target in held.links.items():
        parent, _, name = path.rpartition("/")
        above = aside.directory(parent, make=True) if parent else aside
        os.symlink(target, name, dir_fd=above.fd)
    for entry in held.files:
        with aside.file(entry.path) as file:
            os.fchmod(file.fd, entry.mode & 0o777)
            if (ns := held.times.get(entry.path)) is not None:
                os.utime(file.fd, ns=(ns, ns))


def _set_modes(directory: Directory, held: Contents) -> None:
    """Set the modes and times of directories, the innermost first.

    They are in their places by then: one that cannot be written to cannot be moved to another.
    """
    for path in sorted(held.directories, reverse=True):
        with directory.directory(path) as below:
            if (ns := held.times.get(path)) is not None:
                os.utime(below.fd, ns=(ns, ns))
            os.fchmod(below.fd, held.directories[path])


def _remove_others(aside: Directory, wanted: set[str]) -> None:
    """Remove what an earlier try has left that is not wanted, such as parts of files."""
    listing = aside.listing()
    others = {file.path for file in listing.files} | {*listing.links, *listing.others}
    for path in others - wanted:
        parent, _, name = path.rpartition("/")
        above = aside.directory(parent) if parent else aside
        os.unlink(name, dir_fd=above.fd)


def _move(aside: Directory, directory: Directory) -> None:
    """Put everything in its place. The names of generations are free: none is listed."""
    for name in aside.names():
        remove_tree(directory.place(name))
        os.rename(name, name, src_dir_fd=aside.fd, dst_dir_fd=directory.fd)
