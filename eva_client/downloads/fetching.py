"""Fetches files of a job: several at once, going on after an interruption."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from eva_client.downloads.destination import (
    Destination,
    Goal,
    InTheWay,
    PartialFile,
    Present,
    UnusableName,
    require_usable,
)
from eva_client.rpc.files import Calls, Listing
from eva_client.rpc.retry_wait import IMPATIENCE, RetryWait
from eva_wire.text.escapes import visible
from eva_wire.values.errors import Busy, EvaError, NotFound, StorageFull, Unreachable

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import FilePiece, StoredFile

OUTPUTS = "outputs"
_AT_ONCE = 4
"""Calls that fetch files at the same time."""
_FILES_PER_CALL = 500
_BYTES_PER_CALL = 32 << 20
_TEXT_PER_CALL = 1 << 20
"""Characters of the names of files of a call."""
_LOOKS = 3
"""Times that files are listed, if some are replaced meanwhile."""
_NAMED = 5
_FULL = (errno.ENOSPC, errno.EDQUOT)


class FetchProgress(Protocol):
    """Told how far a fetch is; any thread may call it."""

    def __call__(self, done: int, total: int, files: int, files_total: int) -> None:
        """Bytes and files that are there, and how many there will be."""
        ...


@dataclass(slots=True)
class Fetched:
    """Outcome of a fetch.

    Attributes:
        job: Id of the job.
        directory: Where the files are.
        fetched: Files that were fetched.
        size: Their bytes, without those that were there already.
        present: Files that were there already.
        gone: Names of files that the cluster removed meanwhile.
    """

    job: str
    directory: Path
    fetched: int = 0
    size: int = 0
    present: int = 0
    gone: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Wanted:
    """A file that is to be fetched."""

    stored: StoredFile
    goal: Goal


def silent(done: int, total: int, files: int, files_total: int) -> None:
    """Tell nobody of the progress."""


def fetch(
    client: Client,
    reference: str,
    path: str = OUTPUTS,
    *,
    task: int | None = None,
    to: Path | None = None,
    force: bool = False,
    progress: FetchProgress = silent,
    patience: RetryWait = IMPATIENCE,
) -> Fetched:
    """Fetch files that tasks of a job have stored.

    Files below `path` come to the directory, those of a job of several tasks to ``INDEX/`` in it. A
    file that is there already with the same content stays as it is. A fetch that was interrupted
    is gone on with by another one.

    Args:
        client: Connection to the master.
        reference: Id or name of the job.
        path: A file or a directory: ``outputs``, ``checkpoints`` or ``logs``, or below one of them.
        task: Index of the task; all tasks if absent.
        to: The directory; ``JOB/PATH`` if absent, for a file ``JOB/`` and its directory.
        force: Whether other files of the same names are replaced.
        progress: Told how far it is.
        patience: Waits for a master that is away; by default its going away is an error.

    Raises:
        NotFound: There is no such job or task, or it has stored no such file.
        NotAuthorised: The job belongs to another user.
        InTheWay: Other files have the names, and are not to be replaced.
        UnusableName: A file cannot have its name here; nothing was fetched.
        StorageFull: The disk of this machine has no room.
        Unreachable: The master went away.
    """
    path = path.strip("/") or OUTPUTS
    listing = client.files.listed(reference, path, task=task)
    directory = to if to is not None else _default(listing, path)
    wanted = _wanted(listing, path)
    with Destination(directory) as destination:
        work = _Fetch(
            client, destination, listing.job, force=force, progress=progress, patience=patience
        )
        work.run(wanted)
        for _ in range(_LOOKS):
            if not work.replaced:
                break
            try:
                listing = client.files.listed(listing.job, path, task=task)
            except NotFound:
                listing = Listing(listing.job, listing.tasks)
            work.again(_wanted(listing, path))
    return work.outcome


def _default(listing: Listing, path: str) -> Path:
    """The directory that a user did not name: JOB/PATH, and of a file the one that it is in."""
    names = path.split("/")
    if all(file.path == path for file in listing.files):
        names.pop()
    below = Path(listing.job, *names)
    require_usable(str(below))
    return below


def _wanted(listing: Listing, path: str) -> dict[str, _Wanted]:
    """The files by their places below the directory; raises `UnusableName`."""
    apart = listing.tasks > 1 or any(file.replica for file in listing.files)
    wanted: dict[str, _Wanted] = {}
    above: set[str] = set()
    for file in listing.files:
        if file.path == path:
            place = path.rpartition("/")[2]
        elif file.path.startswith(f"{path}/"):
            place = file.path.removeprefix(f"{path}/")
        else:
            raise UnusableName(f"the master lists {visible(file.path)}, which is not below {path}")
        if apart:
            place = (
                f"{file.task}+{file.replica}/{place}" if file.replica else f"{file.task}/{place}"
            )
        require_usable(place)
        goal = Goal(place, file.size, file.modified_ms, f"{listing.job} {place} {file.version}")
        if place in wanted:
            raise UnusableName(f"the master lists {visible(place)} twice")
        wanted[place] = _Wanted(file, goal)
        above.update(_parents(place))
    if both := sorted(above & wanted.keys()):
        raise UnusableName(
            f"{visible(both[0])} is a file and a directory, which no disk can have",
            hint="name one of the two",
        )
    return wanted


def _parents(place: str) -> Iterator[str]:
    while place := place.rpartition("/")[0]:
        yield place


class _Fetch:
    """One fetch.

    Attributes:
        outcome: Counts so far.
        replaced: Files that the cluster replaced or removed before they were fetched, by place.
    """

    def __init__(
        self,
        client: Client,
        destination: Destination,
        job: str,
        *,
        force: bool,
        progress: FetchProgress,
        patience: RetryWait,
    ) -> None:
        self._client = client
        self._destination = destination
        self._job = job
        self._force = force
        self._progress = progress
        self._patience = patience
        self._calls = Calls()
        self._lock = Lock()
        self._over: set[str] = set()
        """Places of files that are fetched, refused or gone."""
        self._counted: dict[str, int] = {}
        """Bytes of each file that are counted as done."""
        self._own: dict[str, _Wanted] = {}
        """Files that were fetched, by place."""
        self._bytes = self._total = self._files = 0
        self._refused: list[str] = []
        self.outcome = Fetched(job, destination.root)
        self.replaced: dict[str, _Wanted] = {}

    def run(self, wanted: dict[str, _Wanted]) -> None:
        """Fetch files; see `fetch` for what is raised."""
        missing = self._missing(wanted)
        self._over -= wanted.keys()
        to_come = sum(file.goal.size - self._destination.kept(file.goal) for file in missing)
        self._require_room(to_come)
        self._total += sum(file.goal.size for file in wanted.values())
        self._files += len(wanted)
        self._tell()
        try:
            self._fetch_all(missing)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._destination.discard(file.goal for file in missing)
            raise StorageFull(
                f"the disk of {self._destination.root} is full; {self.outcome.fetched:,} files "
                "were fetched whole and stay there",
                hint="make room, or name a directory on another disk with --to, and run it again",
            ) from error
        self._destination.discard(file.goal for file in missing)
        self._require_nothing_refused()

    def again(self, wanted: dict[str, _Wanted]) -> None:
        """Fetch files that were replaced meanwhile, and those that came with them."""
        lost = {place: file for place, file in self.replaced.items() if place not in wanted}
        self.replaced = {}
        self.outcome.gone += lost
        generations = {_generation(file.stored) for file in lost.values()} - {""}
        for place, file in self._own.items():
            if place not in wanted and _generation(file.stored) in generations:
                # Half of a generation of checkpoints is of no use.
                self._destination.remove(place)
                self.outcome.fetched -= 1
        self.run({place: file for place, file in wanted.items() if place not in self._own})

    def _missing(self, wanted: dict[str, _Wanted]) -> list[_Wanted]:
        """The files that are not there yet; raises `InTheWay`."""
        missing = []
        for place, file in wanted.items():
            present = self._destination.present(file.goal)
            if present is Present.FETCHED:
                self.outcome.present += 1
                self._bytes += file.goal.size
                continue
            if present is Present.OTHER and not self._force:
                self._refused.append(place)
            missing.append(file)
        self._require_nothing_refused()
        return missing

    def _require_nothing_refused(self) -> None:
        if not self._refused:
            return
        some = ", ".join(visible(place) for place in sorted(self._refused)[:_NAMED])
        more = len(self._refused) - _NAMED
        raise InTheWay(
            f"{self._destination.root} has other files of the names {some}"
            + (f" and {more:,} more" if more > 0 else ""),
            hint="--force replaces them, --to names another directory",
        )

    def _require_room(self, size: int) -> None:
        room = self._destination.room()
        if size > room:
            raise StorageFull(
                f"the disk of {self._destination.root} has {room / 1e9:,.1f} GB left, and "
                f"{size / 1e9:,.1f} GB are to be fetched",
                hint="make room, or name a directory on another disk with --to",
            )

    def _fetch_all(self, files: Sequence[_Wanted]) -> None:
        """Fetch files in several calls, again and again until none is left."""
        rest = list(files)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="eva-get") as pool:
            while rest:
                before = self._bytes
                calls = [pool.submit(self._call, batch) for batch in _batches(rest)]
                try:
                    failures = [failure for call in calls if (failure := call.result())]
                except BaseException:
                    self._calls.cancel()
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise
                rest = [file for file in rest if file.goal.path not in self._over]
                if rest and failures:
                    if self._bytes > before:
                        self._patience.restore()
                    self._patience.pause(failures[0])

    def _call(self, batch: Sequence[_Wanted]) -> EvaError | None:
        """Fetch files with one call; returns what kept it from fetching all."""
        wanted: list[tuple[_Wanted, int]] = []
        for file in batch:
            sure = file.goal.path in self._counted
            kept = self._destination.kept(file.goal, sure=sure)
            self._count_kept(file, kept)
            if kept == file.goal.size:
                with self._destination.open(file.goal, kept) as part:
                    self._finish(file, part)
            else:
                wanted.append((file, kept))
        try:
            if wanted:
                self._receive(wanted)
        except (Unreachable, Busy) as error:
            return error
        return None

    def _receive(self, wanted: Sequence[tuple[_Wanted, int]]) -> None:
        """Write the pieces of files, which come file by file."""
        asked = [(file.stored, kept) for file, kept in wanted]
        pieces = self._client.files.pieces(self._job, asked, self._calls)
        for position, of_file in groupby(pieces, key=lambda piece: piece.index):
            if position >= len(wanted):
                raise _unasked("a file")
            file, kept = wanted[position]
            with self._destination.open(file.goal, kept) as part:
                for piece in of_file:
                    if piece.gone:
                        self._give_up(file)
                    else:
                        self._append(file, part, piece)

    def _append(self, file: _Wanted, part: PartialFile, piece: FilePiece) -> None:
        if piece.offset != part.size or part.size + len(piece.data) > file.goal.size:
            raise _unasked(f"bytes of {visible(file.goal.path)}")
        part.append(piece.data)
        with self._lock:
            self._bytes += len(piece.data)
            self._counted[file.goal.path] = part.size
        self._tell()
        if part.size == file.goal.size:
            self._finish(file, part)

    def _finish(self, file: _Wanted, part: PartialFile) -> None:
        place = file.goal.path
        placed = self._destination.finish(file.goal, part, replace=self._force)
        with self._lock:
            self._over.add(place)
            if placed:
                self._own[place] = file
                self.outcome.fetched += 1
                self.outcome.size += file.goal.size
            else:
                self._refused.append(place)
        self._tell()

    def _give_up(self, file: _Wanted) -> None:
        """The cluster has replaced or removed a file."""
        with self._lock:
            self._over.add(file.goal.path)
            self.replaced[file.goal.path] = file

    def _count_kept(self, file: _Wanted, kept: int) -> None:
        """Count what an interrupted call, of this command or another, has left."""
        with self._lock:
            self._bytes += kept - self._counted.get(file.goal.path, 0)
            self._counted[file.goal.path] = kept
        self._tell()

    def _tell(self) -> None:
        files = self.outcome.fetched + self.outcome.present
        self._progress(self._bytes, self._total, files, self._files)


def _unasked(what: str) -> EvaError:
    return EvaError(
        f"the master sends {what} that it was not asked for", hint="use the same release for both"
    )


def _batches(files: Sequence[_Wanted]) -> Iterator[list[_Wanted]]:
    """Files in calls of about the same size, the largest files first, each in a call of its own."""
    batch: list[_Wanted] = []
    size = text = 0
    for file in sorted(files, key=lambda wanted: -wanted.goal.size):
        long = len(file.stored.path) + len(file.stored.version)
        full = len(batch) == _FILES_PER_CALL or text + long > _TEXT_PER_CALL
        if batch and (full or size + file.goal.size > _BYTES_PER_CALL):
            yield batch
            batch, size, text = [], 0, 0
        batch.append(file)
        size, text = size + file.goal.size, text + long
    if batch:
        yield batch


def _generation(file: StoredFile) -> str:
    """The generation of checkpoints that a file is of; empty for none."""
    top, _, rest = file.path.partition("/")
    return f"{file.task}+{file.replica}/{rest.partition('/')[0]}" if top == "checkpoints" else ""
