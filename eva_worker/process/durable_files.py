"""Writes files that a crash leaves either in the old version or in the new one.

Tasks share the disk with the worker's records and may fill it. Some room is reserved (`Reserve`),
so that their end can be recorded even then.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

import structlog

RESERVE_BYTES = 1 << 20
"""Bytes reserved: room for the records of some hundred attempts."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Numbers of the errors that say that a disk is full."""

_log = structlog.get_logger()


class Reserve:
    """Reserved room on a disk, which is given up when the disk is full."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def keep(self, path: Path | None = None) -> None:
        """Reserve room if there is any; call it again after the room was used.

        Args:
            path: The file that occupies it; `None` for the same file as before.
        """
        self._path = path or self._path
        if self._path is None:
            return
        with contextlib.suppress(OSError), self._path.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)

    def give_up(self) -> bool:
        """Free the reserved room; returns whether there was any."""
        if self._path is None or not self._path.exists():
            return False
        _log.error("the disk is full: the room reserved for records is used", path=str(self._path))
        self._path.unlink(missing_ok=True)
        return True


reserve = Reserve()
"""The agent's reserve, without room before the first `Reserve.keep`."""


def is_full(directory: Path) -> bool:
    """Whether the disk of a directory has hardly more room than the reserve, or for no file."""
    disk = os.statvfs(directory)
    if disk.f_files and not disk.f_favail:
        return True
    return disk.f_bavail * disk.f_frsize <= RESERVE_BYTES


def write_json(path: Path, document: Any, *, sync: bool = True) -> None:
    """Replace a document atomically, making its directory if need be.

    Args:
        path: Where; its directory gets a short-lived sibling ``.NAME.new``.
        document: Anything that `json` takes.
        sync: Whether it must survive a power cut; if not, it survives the process only.

    Raises:
        OSError: The disk is full or the directory cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    write_file(path, text.encode(), sync=sync)


def write_file(path: Path, data: bytes, *, mode: int = 0o666, sync: bool = True) -> None:
    """Replace a file atomically.

    Args:
        path: Where, in a directory that exists; it gets a short-lived sibling ``.NAME.new``.
        data: Its content.
        mode: Its permissions, less the process's mask, from before its first byte on.
        sync: Whether it must survive a power cut; if not, it survives the process only.

    Raises:
        OSError: The disk is full, and no room is set aside, or the directory cannot be written.
    """
    try:
        _replace(path, data, mode=mode, sync=sync)
    except OSError as error:
        if error.errno not in FULL or not reserve.give_up():
            raise
        _replace(path, data, mode=mode, sync=sync)


def _replace(path: Path, data: bytes, *, mode: int, sync: bool) -> None:
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    aside.replace(path)
    if sync:
        sync_directory(path.parent)


def read_json(path: Path) -> Any | None:
    """Read a document; `None` if there is none.

    Raises:
        ValueError: The file is not JSON, which no crash of the worker can cause.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def sync_directory(path: Path) -> None:
    """Sync a directory, so that the names in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
