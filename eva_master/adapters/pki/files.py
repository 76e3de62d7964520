"""Writes files atomically, with permissions that can restrict them to their owner."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a file atomically; when this returns it survives a power cut.

    Args:
        path: The file, in a directory that exists.
        data: Its content.
        mode: Its permissions, from before its first byte on.

    Raises:
        OSError: The disk is full or the directory cannot be written.
    """
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
