"""Brings what earlier jobs have written to their outputs to a task that reads it.

The master names the jobs, which are of the task's owner and have ended: nothing writes there.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from eva_worker.at_once import each
from eva_worker.errors import BadOrder, Missing, TooLarge
from eva_worker.files.beneath import CHANGED, Directory
from eva_worker.files.download import fetch_read_only, require_room_for
from eva_worker.files.objects import Objects
from eva_worker.orders import JobOutputs

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MOST_TASKS = 1_000_000
_MOST_FILES = 1_000_000
"""Files of one input."""
_File = tuple[str, int, str]
"""An object's key and size, and its path below the directory of inputs."""


class OutputsFetcher:
    """Copies outputs of jobs to the inputs of a task.

    Args:
        objects: The cluster's object store.
        mount: A directory that instances share and that some outputs lie in; `None` if there is
            none, or if the object store is in it.
    """

    def __init__(self, objects: Objects, mount: Path | None = None) -> None:
        self._objects = objects
        self._mount = mount

    async def fetch(self, outputs: Mapping[str, JobOutputs], target: Path) -> None:
        """Copy outputs, each to ``target/NAME``, read-only.

        Raises:
            BadOrder: No correct master sends such an order.
            Missing: A job has written nothing there.
            TooLarge, InstanceFailed: The disk has no room for them, or there are too many files.
            StoreUnavailable: The store failed. Files that have arrived are kept for the next try.
        """
        if not outputs:
            return
        directory = await asyncio.to_thread(lambda: Directory.at(target, make=True))
        for name, wanted in sorted(outputs.items()):
            _check(name, wanted)
            stored = await self._stored(name, wanted)
            sizes = [(path, size) for _, size, path in stored]
            await asyncio.to_thread(require_room_for, directory, sizes)
            await each(stored, lambda one: fetch_read_only(self._objects, directory, *one))
            copied = await asyncio.to_thread(self._copied, name, wanted, directory)
            if not stored and not copied:
                raise Missing(
                    f"input {name!r}: there is nothing in {wanted}; the job has written no such"
                    " file to $EVA_STORAGE/outputs"
                )

    async def _stored(self, name: str, wanted: JobOutputs) -> list[_File]:
        """All files in the object store."""
        files: list[_File] = []

        async def look(place: tuple[str, str]) -> None:
            async for file in self._below(*place, wanted.path):
                files.append(file)
                if len(files) > _MOST_FILES:
                    raise _too_many(wanted)

        await each(_places(name, wanted), look)
        return files

    async def _below(self, run: str, place: str, path: str) -> AsyncIterator[_File]:
        """The files of one task run in the object store."""
        key = f"jobs/{run}/outputs/{path}".rstrip("/")
        size = await self._objects.size(key) if path else None
        if size is not None:
            yield key, size, place
            return
        async for below, size in self._objects.sizes(key):
            yield below, size, place + below.removeprefix(key)

    def _copied(self, name: str, wanted: JobOutputs, target: Directory) -> int:
        """Copy all files of the shared directory; returns how many. Blocks."""
        copied = 0
        if self._mount is None:
            return 0
        with Directory.at(self._mount) as mount:
            for run, place in _places(name, wanted):
                try:
                    outputs = mount.directory(f"jobs/{run}/outputs")
                except OSError as error:
                    if error.errno not in CHANGED:
                        raise
                    continue  # The task wrote nothing, or made something else of its directory.
                with outputs:
                    copied += _copy(outputs, wanted.path, target, place)
                if copied > _MOST_FILES:
                    raise _too_many(wanted)
        return copied


def _check(name: str, wanted: JobOutputs) -> None:
    if not _is_name(name):
        raise BadOrder(f"input {name[:200]!r}: not a file name")
    names = wanted.path.split("/") if wanted.path else []
    if not _JOB.fullmatch(wanted.job) or not all(map(_is_name, names)):
        raise BadOrder(f"input {name!r}: no outputs of a job: {str(wanted)[:200]!r}")
    if wanted.tasks > _MOST_TASKS:
        raise BadOrder(f"input {name!r}: outputs of {wanted.tasks} tasks")


def _is_name(text: str) -> bool:
    return text not in {"", ".", ".."} and not {"/", "\0"} & {*text}


def _places(name: str, wanted: JobOutputs) -> Iterator[tuple[str, str]]:
    """The task runs whose outputs are wanted, and where those of each go."""
    if not wanted.tasks:
        yield f"{wanted.job}/{wanted.index}", name
    for index in range(wanted.tasks):
        yield f"{wanted.job}/{index}", f"{name}/{index}"


def _copy(outputs: Directory, path: str, target: Directory, place: str) -> int:
    """Copy a file, or all regular files of a tree; returns how many."""
    wanted = [(file.path, file.status.st_size) for file in outputs.files()]
    if path:
        wanted = [entry for entry in wanted if entry[0] == path or entry[0].startswith(f"{path}/")]
    below = [(name.removeprefix(path).lstrip("/"), size) for name, size in wanted]
    placed = [(f"{place}/{name}" if name else place, size) for name, size in below]
    require_room_for(target, placed)
    for (name, _), (to, _) in zip(wanted, placed, strict=True):
        _copy_file(outputs, name, target, to)
    return len(wanted)


def _copy_file(source: Directory, path: str, target: Directory, place: str) -> None:
    with (
        source.file(path) as file,
        open(file.fd, "rb", closefd=False) as reader,
        os.fdopen(target.created(place, 0o444), "wb") as writer,
    ):
        shutil.copyfileobj(reader, writer, 1 << 20)


def _too_many(wanted: JobOutputs) -> TooLarge:
    return TooLarge(f"{wanted}: more than {_MOST_FILES:,} files")
