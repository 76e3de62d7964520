"""Stores copies of the plain files of one attempt."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from eva_worker.at_once import each
from eva_worker.errors import BadOrder, Missing, UnstorableFile
from eva_worker.files import CONTAINER_HOME
from eva_worker.files.beneath import Directory, Found, Listing, require_own, vanishing
from eva_worker.files.download import MOST_LISTED, FileEntry
from eva_worker.files.objects import Objects
from eva_worker.files.parts import PART
from eva_worker.files.plain import contents, copies
from eva_worker.files.plain.contents import Contents
from eva_worker.files.plain.copies import Copy, How
from eva_worker.orders import TaskKey

_SETTLE_S = 1.0
"""How long files of more than a part must stay unchanged before they are read, while a program
runs: one that is being written is not sent in vain."""
_RESTLESS = 10
"""Looks in a row that found files changing before the user is told."""
_LONGEST_PATH = 4_096
_T = TypeVar("_T")


class Aside(Protocol):
    """Runs what reads the task's files in a thread."""

    def __call__(self, what: Callable[[], _T]) -> Awaitable[_T]:
        """Run it and return what it returns."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """The copy that an attempt began from.

    Attributes:
        number: Its number in the task run's own count, 0 for none.
        name: Its name if the task run stored it itself, else empty.
        state: The state of the files once they were restored.
        steps: How many steps they hold.
    """

    number: int = 0
    name: str = ""
    state: str = contents.EMPTY
    steps: int = 0


NOTHING = Origin()
"""The origin of an attempt that begins without plain files."""


class PlainUploads:
    """Stores copies of what a task has in ``$EVA_CHECKPOINT_DIR`` beside generations.

    Args:
        objects: The store.
        key: The attempt.
        gang: The other members of its gang.
        home: The attempt's directory.
        steps: Tells how many steps the program has made.
        aside: Runs what reads the task's files.
        count: Called with the number of bytes of every upload.
        notice: Called with what the user should know, as often as it is true.
        saved: Last result of `remembered`, for an agent that goes on.

    Attributes:
        kept: The number of the newest copy that holds the program's files, 0 for none.
    """

    def __init__(
        self,
        objects: Objects,
        key: TaskKey,
        *,
        gang: Sequence[str],
        home: Path,
        steps: Callable[[], int],
        aside: Aside,
        count: Callable[[int], None],
        notice: Callable[[str], None],
        saved: Mapping[str, Any],
    ) -> None:
        self._objects = objects
        self._key = key
        self._members = len(gang) + 1
        self._first = not gang or key.run.endswith("/0")
        self._home = home
        self._steps = steps
        self._aside = aside
        self._count = count
        self._notice = notice
        self.kept = int(saved.get("kept", 0))
        self._number = int(saved.get("number", 0))
        self._origin = str(saved.get("origin", ""))
        self._began = str(saved.get("began", contents.EMPTY))
        self._stored = str(saved.get("stored", ""))
        self._seen: tuple[str, int] = ("", 0)
        self._digests: dict[tuple[str, int, int, int], str] = {}
        self._lists: dict[Copy, set[str]] = {}
        self._known: set[str] | None = None
        self._restless = 0
        self._witnessed = False

    def began_from(self, origin: Origin) -> None:
        """Note the copy that was restored: only changes are stored."""
        self.kept = self._number = origin.number
        self._origin, self._began = origin.name, origin.state
        self._stored = ""

    def remembered(self) -> dict[str, Any]:
        """State that the next agent must know."""
        return {
            "kept": self.kept,
            "number": self._number,
            "origin": self._origin,
            "began": self._began,
            "stored": self._stored,
        }

    async def store(self, how: How, goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Store a copy if there is something new; returns whether it did.

        Args:
            how: `QUIET` while the program runs: then the copy counts only if nothing changed.
            goes_on: Whether the program still runs.

        Raises:
            StoreUnavailable: The store failed.
        """
        try:
            with vanishing("checkpoints"), Directory.at(self._home) as home:
                directory = home.directory("checkpoints")
        except Missing:
            self._notice("$EVA_CHECKPOINT_DIR is no directory any more: nothing in it is stored")
            return False
        with directory:
            before = self._number
            try:
                await self._store(directory, how, goes_on)
            except UnstorableFile as error:
                self._notice(f"files in $EVA_CHECKPOINT_DIR cannot be stored: {error}")
            return self._number != before

    async def _store(self, directory: Directory, how: How, goes_on: Callable[[], bool]) -> None:
        listing = await self._aside(lambda: contents.listed(directory))
        state = contents.state_of(listing)
        if self._seen[0] != state:
            self._seen = (state, self._steps())
        kind = self._kind(how, state)
        if kind is None:
            return
        await self._know()
        try:
            if kind is How.QUIET and self._large(listing):
                await asyncio.sleep(_SETTLE_S)
                await self._require(state, directory)
            held = Contents() if kind is How.IDLE else await self._held(directory, listing)
            if kind is How.QUIET:
                await self._require(state, directory)
        except Missing:
            if kind is How.QUIET:
                self._moved()
                return
            raise UnstorableFile("they changed while they were stored") from None
        if kind is How.QUIET and not goes_on():
            return  # The program may have been killed in the middle of a file.
        self._restless = 0
        if self._number or held.any or kind is How.IDLE:
            await self._publish(kind, held)
        self._witnessed = how is How.STOPPED
        if kind is not How.IDLE:
            self._stored = state

    def _kind(self, how: How, state: str) -> How | None:
        """How the copy that is to be stored now comes about, `None` for no copy."""
        member = self._members > 1
        if member and how is How.STOPPED:
            if self._witnessed:
                return None
            unchanged = state == self._began and not self._stored
            return How.IDLE if unchanged else how
        if not self._first or state == (self._stored or self._began):
            return None
        return how

    def _moved(self) -> None:
        self._restless += 1
        if self._restless >= _RESTLESS:
            self._notice(
                "files in $EVA_CHECKPOINT_DIR change all the time: they are stored when the task is"
                " stopped, and changes are lost if it is killed or its instance is lost"
            )

    def _large(self, listing: Listing) -> bool:
        """Whether files of more than a part are to be read."""
        new = (file.status.st_size for file in listing.files if _seen(file) not in self._digests)
        return sum(new) > PART

    async def _require(self, state: str, directory: Directory) -> None:
        """Raise `Missing` if the files are no longer as they were."""
        if contents.state_of(await self._aside(lambda: contents.listed(directory))) != state:
            raise Missing("changed while it was stored")

    async def _held(self, directory: Directory, listing: Listing) -> Contents:
        """Store the contents of all files; returns what the copy holds."""
        for path, reason in listing.others.items():
            self._leave_out(path, f"it {reason}")
        entries = await each(listing.files, lambda found: self._entry(directory, found))
        files = [entry for entry in entries if entry is not None]
        directories = [
            directory_entry
            for directory_entry in listing.directories
            if self._can_be_listed(directory_entry.path)
        ]
        times = {entry.path: entry.status.st_mtime_ns for entry in (*listing.files, *directories)}
        present = {file.path for file in files} | {entry.path for entry in directories}
        roots = [f"{home}/checkpoints" for home in (self._home, CONTAINER_HOME)]
        links = {}
        for path, said in listing.links.items():
            target = contents.inside(path, said, roots)
            if target is None:
                self._leave_out(path, "it is a link that leads out of $EVA_CHECKPOINT_DIR")
            elif self._can_be_listed(path) and self._can_be_listed(target):
                links[path] = target
        held = Contents(
            files,
            {entry.path: stat.S_IMODE(entry.status.st_mode) & 0o777 for entry in directories},
            links,
            {path: ns for path, ns in times.items() if path in present},
            self._seen[1],
        )
        seen = {_seen(file) for file in listing.files}
        self._digests = {key: digest for key, digest in self._digests.items() if key in seen}
        return held

    def _leave_out(self, path: str, reason: str) -> None:
        self._notice(f"checkpoint {path[:200]!r} is not stored: {reason}")

    def _can_be_listed(self, path: str) -> bool:
        """Whether a path can be in a list; the user is told if not."""
        try:
            size = len(path.encode())
        except UnicodeEncodeError:
            self._leave_out(path, "its name is not UTF-8")
            return False
        if size > _LONGEST_PATH:
            self._leave_out(path, "its path is too long")
        return size <= _LONGEST_PATH

    async def _entry(self, directory: Directory, found: Found) -> FileEntry | None:
        """Store the content of a file unless it is stored; `None` if it cannot be.

        Raises:
            Missing: The file no longer exists, or changed meanwhile.
        """
        if not self._can_be_listed(found.path):
            return None
        try:
            with vanishing(found.path):
                file = await self._aside(lambda: directory.file(found.path))
            with file:
                file.require_dense()
                require_own(file, directory)
                digest = self._digests.get(_seen(found))
                if digest is None:
                    digest = await self._aside(file.digest)
                if self._known is None or digest not in self._known:
                    blob = copies.blob_key(self._key.run, digest)
                    self._count(await self._objects.put(blob, file))
                after = os.fstat(file.fd)
                if _key(found.path, after) != _seen(found):
                    if self._known is not None and digest not in self._known:
                        await self._objects.delete(copies.blob_key(self._key.run, digest))
                    raise Missing(f"changed while it was stored: {found.path}")
        except UnstorableFile as error:
            self._leave_out(found.path, str(error))
            return None
        if self._known is not None:
            self._known.add(digest)
        self._digests[_seen(found)] = digest
        mode = stat.S_IMODE(found.status.st_mode) & 0o777
        return FileEntry(found.path, mode, digest, found.status.st_size)

    async def _publish(self, how: How, held: Contents) -> None:
        """Write the list of a copy, which then exists, and remove what it replaces."""
        data = contents.document(held)
        if len(data) > MOST_LISTED:
            raise UnstorableFile("the names of its files are too long together")
        copy = Copy(self._number + 1, self._key.attempt, self._members, how)
        await self._objects.put(copies.list_key(self._key.run, copy), data)
        self._number = copy.number
        if how is not How.IDLE:
            self.kept = copy.number
        self._lists[copy] = held.digests
        await self._prune()

    async def _know(self) -> None:
        """Learn, once, which copies earlier attempts and agents have stored."""
        if self._known is not None:
            return
        keys = [key async for key in self._objects.list(copies.plain_prefix(self._key.run))]
        for copy in copies.copies_in(self._key.run, keys):
            with contextlib.suppress(Missing, BadOrder):
                data = await self._objects.get(copies.list_key(self._key.run, copy))
                self._lists[copy] = contents.read(data).digests
            self._number = max(self._number, copy.number)
        blobs = {key.rpartition("/")[2] for key in keys}
        self._known = blobs.intersection(set().union(*self._lists.values()))

    async def _prune(self) -> None:
        """Remove copies that no attempt will begin from, and contents that no copy has."""
        for copy in copies.obsolete(self._lists, self._origin):
            await self._objects.delete(copies.list_key(self._key.run, copy))
            del self._lists[copy]
        wanted = set().union(*self._lists.values())
        prefix = copies.blob_key(self._key.run, "").rstrip("/")
        async for key in self._objects.list(prefix):
            if key.rpartition("/")[2] not in wanted:
                await self._objects.delete(key)
        self._known = wanted


def _key(path: str, status: os.stat_result) -> tuple[str, int, int, int]:
    return path, status.st_size, status.st_mtime_ns, status.st_ino


def _seen(found: Found) -> tuple[str, int, int, int]:
    return _key(found.path, found.status)
