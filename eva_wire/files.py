"""Writes files atomically, with permissions that can restrict them to their owner."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from eva_wire.values.errors import InvalidConfig


def write_file(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace a file atomically; when this returns it survives a power cut.

    Args:
        path: The file, in a directory that exists.
        data: Its content.
        mode: Its permissions, from before its first byte on.

    Raises:
        OSError: The disk is full or the directory cannot be written; names the file.
    """
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # A write names no file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    aside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def secret_file(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Make a file that only its owner can read, and remove it again if the block fails.

    No link is followed: one at `path` counts as a file that exists.

    Args:
        path: The file.
        overwrite: Whether a file that exists is replaced, once the new one is complete.

    Raises:
        InvalidConfig: The file exists and is not to be replaced, or it cannot be made.
    """
    if os.path.lexists(path) and (not overwrite or not (path.is_symlink() or path.is_file())):
        what = "exists already" if path.is_symlink() or path.is_file() else "is no regular file"
        hint = "choose another file" + (", or replace it with --overwrite" if not overwrite else "")
        raise InvalidConfig(f"{path} {what}", hint=hint)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}") if overwrite else path
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        descriptor = os.open(draft, flags, 0o600)
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            yield file
            file.flush()
            os.fsync(descriptor)
        if draft != path:
            draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
