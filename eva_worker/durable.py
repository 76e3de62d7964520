"""JSON documents that are whole after a crash: the old version, or the new one."""

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
    aside = path.with_name(f".{path.name}.new")
    with aside.open("w", encoding="utf-8") as file:
        json.dump(document, file, separators=(",", ":"), sort_keys=True)
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
