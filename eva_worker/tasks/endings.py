"""How an attempt ended: in words for its user, and in the object store for later attempts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from eva_worker.errors import InstanceFailed, Missing, WorkerError
from eva_worker.files.beneath import File
from eva_worker.files.objects import Objects
from eva_worker.files.plain.copies import How
from eva_worker.orders import Progress, TaskKey
from eva_worker.process.durable_files import is_full

_SIGNALLED = 128
_TAIL_BYTES = 8192
_TAIL_LINES = 3
_TAIL_CHARACTERS = 400


def log_tail(log: Path) -> str:
    """The end of a log, empty if it has none; blocks.

    A log that the task has replaced, by a link perhaps, is not read.
    """
    try:
        with File.at(log) as file:
            begin = max(0, file.status.st_size - _TAIL_BYTES)
            return os.pread(file.fd, _TAIL_BYTES, begin).decode(errors="backslashreplace")
    except (OSError, WorkerError):
        return ""


def last_words(tail: str) -> str:
    """The last lines of a log as one printable line, empty if it has none.

    Whatever a terminal might obey is escaped, and the length is bounded.

    Args:
        tail: See `log_tail`.
    """
    lines = [_printable(line) for line in tail.splitlines() if line.strip()]
    said = " | ".join(lines[-_TAIL_LINES:])
    return said if len(said) <= _TAIL_CHARACTERS else f"...{said[3 - _TAIL_CHARACTERS :]}"


def _printable(line: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in line.strip()
    )


def filled_by(directory: Path) -> bool | None:
    """Whether an attempt has filled the disk of its instance; blocks.

    Args:
        directory: The attempt's own.

    Returns:
        `None` if the disk is not full, and `False` if others use more of it than the attempt.
    """
    if not is_full(directory):
        return None
    disk = os.statvfs(directory)
    size, files = _size(directory)
    if disk.f_files and not disk.f_favail:
        return 2 * files >= disk.f_files - disk.f_ffree
    return 2 * size >= (disk.f_blocks - disk.f_bfree) * disk.f_frsize


def _size(directory: Path) -> tuple[int, int]:
    """Bytes of disk that a directory takes, and files; links are not followed."""
    total, files = 0, 0
    for root, directories, names in os.walk(directory):
        files += len(directories) + len(names)
        for name in names:
            try:
                total += os.lstat(Path(root, name)).st_blocks * 512
            except OSError:
                continue
    return total, files


def not_begun(error: Exception, by_itself: bool | None) -> tuple[str, bool]:
    """Why a program was not started, for its user, and whether the instance is to blame.

    Args:
        error: Error of the start.
        by_itself: Answer of `filled_by`: inputs that no disk can hold are the job's own fault.
    """
    if by_itself:
        return f"its files fill the disk of its instance: {error}", False
    return str(error), by_itself is False or isinstance(error, InstanceFailed)


def ended_how(exit_code: int, *, stopped: bool) -> How | None:
    """How plain files came about that a program has left, `None` if it was killed.

    Args:
        exit_code: Of the program; minus the signal's number if a signal ended it. Shells say 128
            and the number instead.
        stopped: Whether a stop was requested.
    """
    number = -exit_code if exit_code < 0 else max(0, exit_code - _SIGNALLED)
    if stopped and number in {0, signal.SIGTERM}:
        return How.STOPPED
    return None if number else How.ENDED


class SuccessNote:
    """The note in the object store that a task run has succeeded.

    The note is written once all files of the attempt are stored, and before the master is told. So
    if the instance is lost before the master has heard of the success, a later attempt finds the
    note, and nothing runs twice.

    Args:
        objects: The store.
        key: The attempt.
    """

    def __init__(self, objects: Objects, key: TaskKey) -> None:
        self._objects = objects
        self._key = key
        self._prefix = f"jobs/{key.run}/finished"

    async def note(self, generation: int, progress: Progress) -> None:
        """Note that this attempt has succeeded; raises `StoreUnavailable`."""
        document = {
            "generation": generation,
            "steps": progress.steps,
            "total_steps": progress.total_steps,
        }
        text = json.dumps(document, separators=(",", ":"), sort_keys=True)
        await self._objects.put(f"{self._prefix}/{self._key.attempt:04d}.json", text.encode())

    async def before(self) -> tuple[int, int, int] | None:
        """Which earlier attempt has succeeded; raises `StoreUnavailable`.

        Returns:
            Its number, its newest checkpoint generation and its steps; `None` if none has.
        """
        if self._key.attempt <= 1:
            return None
        async for key in self._objects.list(self._prefix):
            number = key.removeprefix(f"{self._prefix}/").removesuffix(".json")
            if not number.isdecimal() or int(number) >= self._key.attempt:
                continue
            try:
                document = json.loads(await self._objects.get(key))
                return int(number), int(document["generation"]), int(document["steps"])
            except (Missing, ValueError, KeyError, TypeError):
                continue
        return None
