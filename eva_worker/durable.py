"""Files that are whole after a crash: the old version, or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, document: Any, *, sync: bool = True) -> None:
    """Replace a document atomically, making its directory if need be.

    Args:
        path: Where; its directory gets a short-lived sibling ``.NAME.new``.
        document: Anything that `json` takes.
        sync: Whether it must survive a power cut, too; without, it survives the process.

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
        sync: Whether it must survive a power cut, too; without, it survives the process.

    Raises:
        OSError: The disk is full or the directory cannot be written.
    """
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
        ValueError: The file is not JSON, which no crash of ours explains.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
