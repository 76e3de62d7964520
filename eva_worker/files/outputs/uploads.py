"""Keeps the outputs of one attempt in the object store as the program has them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from eva_worker.at_once import each
from eva_worker.errors import Missing, UnstorableFile
from eva_worker.files.beneath import CHANGED, Directory, Found, require_own, vanishing
from eva_worker.files.objects import Objects
from eva_worker.files.outputs.listing import Outputs, collected
from eva_worker.files.plain.uploads import Aside

_PARALLEL = 8
_REMEMBER_S = 1.0
"""Least time between two records of which outputs are stored."""


class OutputUploads:
    """Stores outputs that are new or have changed, and removes those that the program removes.

    A file that an earlier attempt has stored stays, since the next one begins with no outputs,
    unless a file of this one takes its place.

    Args:
        objects: The store.
        run: The task run.
        home: The attempt's directory.
        outputs: The path of the outputs in it.
        aside: Runs what reads the task's files.
        count: Called with the number of bytes of every upload.
        notice: Called with what the user should know, as often as it is true.
        remember: Called now and then, and at the end, to write `sent` down.
        saved: Last value of `sent`, for an agent that goes on.

    Attributes:
        sent: Size, time and inode of each output that is stored, by its name.
    """

    def __init__(
        self,
        objects: Objects,
        run: str,
        *,
        home: Path,
        outputs: str,
        aside: Aside,
        count: Callable[[int], None],
        notice: Callable[[str], None],
        remember: Callable[[], Awaitable[None]],
        saved: Mapping[str, Any],
    ) -> None:
        self._objects = objects
        self._prefix = f"jobs/{run}/outputs"
        self._home = home
        self._outputs = outputs
        self._aside = aside
        self._count = count
        self._notice = notice
        self._remember = remember
        self.sent: dict[str, list[int]] = dict(saved)
        self._stored: set[str] | None = None
        self._gone: set[str] = set()
        self._parallel = asyncio.Semaphore(_PARALLEL)
        self._remembered_at = 0.0

    async def store(self, *, over: bool) -> None:
        """Bring the store up to date.

        Args:
            over: Whether the program has ended, other than by a kill. While it runs, an output goes
                from the store once two looks in a row have missed it: it may be written anew.

        Raises:
            StoreUnavailable: The store failed.
        """
        with Directory.at(self._home) as home:
            try:
                outputs = await self._aside(lambda: collected(home, self._outputs))
            except FileNotFoundError:
                outputs = Outputs()
            except OSError as error:
                if error.errno not in CHANGED | {errno.EACCES, errno.EPERM}:
                    raise
                self._notice("$EVA_STORAGE/outputs is no directory any more: it is not stored")
                return
            except UnstorableFile as error:
                self._notice(f"outputs cannot be stored: {error}")
                return
            for name, reason in outputs.left_out.items():
                self._notice(f"output {name[:200]!r} is not stored: {reason}")
            await self._bring(home, outputs.files, over=over)

    async def _bring(self, home: Directory, files: Mapping[str, Found], *, over: bool) -> None:
        changed = self._is_changed(files)
        gone = {name for name in self.sent if name not in files}
        leaving = gone if over else gone & self._gone
        self._gone = gone - leaving
        if not changed and not leaving:
            return
        try:
            await each(leaving, self._remove)
            await self._clear_the_way(changed, files)
            await each(changed, lambda name: self._one(home, name, files[name]))
        finally:
            await self._remember()

    def _is_changed(self, files: Mapping[str, Found]) -> list[str]:
        return [name for name, file in files.items() if self.sent.get(name) != _seen(file)]

    async def _clear_the_way(self, changed: Iterable[str], files: Mapping[str, Found]) -> None:
        """Remove stored files in the way: a file has become a directory, or the reverse."""
        if self._stored is None:
            keys = [key async for key in self._objects.list(self._prefix)]
            self._stored = {key.removeprefix(f"{self._prefix}/") for key in keys}
        names = set(changed)
        above = {parent for name in names for parent in _parents(name)}
        in_the_way = [
            name
            for name in self._stored
            if name not in files and (name in above or not names.isdisjoint(_parents(name)))
        ]
        await each(in_the_way, self._remove)

    async def _remove(self, name: str) -> None:
        with contextlib.suppress(UnstorableFile):  # Then it never was there.
            await self._objects.delete(f"{self._prefix}/{name}")
        self.sent.pop(name, None)
        if self._stored is not None:
            self._stored.discard(name)

    async def _one(self, home: Directory, name: str, found: Found) -> None:
        try:
            async with self._parallel:
                with vanishing(name):
                    file = await self._aside(lambda: home.file(found.path))
                with file, home.directory(self._outputs) as own:
                    file.require_dense()
                    require_own(file, own)
                    self._count(await self._objects.put(f"{self._prefix}/{name}", file))
        except Missing:
            return  # The program has removed it meanwhile.
        except OSError as error:
            if error.errno not in CHANGED:
                raise
            return
        except UnstorableFile as error:
            self._notice(f"output {name[:200]!r} is not stored: {error}")
        else:
            if self._stored is not None:
                self._stored.add(name)
        self.sent[name] = _seen(found)
        if time.monotonic() - self._remembered_at > _REMEMBER_S:
            self._remembered_at = time.monotonic()
            await self._remember()


def _seen(found: Found) -> list[int]:
    return [found.status.st_size, found.status.st_mtime_ns, found.status.st_ino]


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
