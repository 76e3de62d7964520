"""Short names for what sockets are made in, whose names have hardly more than 100 bytes.

An attempt may have a directory of its own in one for temporary files, with a link to its files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path

from eva_worker.errors import StartFailed
from eva_worker.files.beneath import Directory, remove_tree

OWNER = "of"
"""The link in an attempt's directory elsewhere that names its own."""
ELSEWHERE = re.compile(r"eva-[0-9a-f]{20}")
"""Names of such directories."""
_LONGEST = 32
"""Bytes of a link's path: below ``LINK/tmp`` sockets still have names of 70 bytes, like Ray's."""


def bases() -> list[Path]:
    """Directories for temporary files of this user."""
    named = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")  # noqa: S108
    return [Path(base) for base in named if base]


def elsewhere(attempt: Path) -> list[Path]:
    """Directories that an attempt may have elsewhere, by its own; the same at every call."""
    name = f"eva-{hashlib.sha256(os.fsencode(attempt)).hexdigest()[:20]}"
    return [base / name for base in bases()]


def make_directory(path: Path, attempt: Path) -> None:
    """Make a directory for this user and whom its runtime let in, with a link if it is elsewhere.

    Args:
        path: The directory.
        attempt: The directory of the attempt, which exists.

    Raises:
        StartFailed: Another user has a directory of that name.
        OSError: The directory cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with Directory.at(path) as directory:
            if os.fstat(directory.fd).st_uid != os.geteuid():
                raise StartFailed(f"{path} belongs to another user")
            # A runtime may have let the group of its tasks in, for a task that still runs.
            os.fchmod(directory.fd, 0o700 | os.fstat(directory.fd).st_mode & 0o010)
            if attempt.absolute() not in path.absolute().parents:
                with contextlib.suppress(FileExistsError):
                    os.symlink(attempt.absolute(), OWNER, dir_fd=directory.fd)
    except OSError as error:
        raise StartFailed(f"{path} is no directory: {error.strerror}") from error


def make_link(attempt: Path) -> Path | None:
    """Make a short name of an attempt's directory, a link; `None` where there can be none.

    Args:
        attempt: The directory, which exists.
    """
    for place in elsewhere(attempt):
        link = place / OWNER
        if len(os.fsencode(link)) <= _LONGEST:
            with contextlib.suppress(OSError, StartFailed):
                make_directory(place, attempt)
                if link.samefile(attempt):
                    return link
    return None


def remove_link(link: Path) -> None:
    """Remove what `make_link` has made, and a socket that is beside it."""
    remove_tree(link.parent)
