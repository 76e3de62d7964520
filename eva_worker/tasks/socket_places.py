"""Where the sockets of attempts are: beside their files, or elsewhere if that name is too long."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

from eva_worker.files.beneath import Directory, remove_tree
from eva_worker.process.durable_files import write_file
from eva_worker.runtime.short_names import ELSEWHERE, OWNER, bases, elsewhere, make_directory

_LONGEST = 107  # sockaddr_un holds 108 bytes including the zero at the end.


def socket_path(directory: Path) -> Path:
    """The path of an attempt's socket, by the attempt's directory; the same at every call.

    The socket is in the directory itself if the name is short enough for a socket, else in a
    directory of its own under the first of these where it is: ``$XDG_RUNTIME_DIR``, the system's
    temporary directory, ``/tmp``.
    """
    path = directory / "run" / "eva.sock"
    others = [place / "eva.sock" for place in elsewhere(directory)]
    return next(place for place in (path, *others) if len(os.fsencode(place)) <= _LONGEST)


def make_socket_directory(socket: Path, attempt: Path) -> None:
    """Make the directory of a socket, for this user and whom its runtime let in.

    Args:
        socket: As `socket_path` says.
        attempt: The directory of the attempt, which exists.

    Raises:
        StartFailed: Another user has a directory of that name.
    """
    make_directory(socket.parent, attempt)


def socket_secret(attempt: Path, *, make: bool = False) -> str:
    """The secret that an attempt's reports show; empty if it has begun without one.

    Args:
        attempt: The directory of the attempt, where it is kept and which tasks do not see.
        make: Whether to make one if there is none.

    Raises:
        OSError: The file cannot be made.
    """
    path = attempt / "socket-secret"
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(encoding="ascii")
    if make:
        write_file(path, secrets.token_hex(16).encode(), mode=0o600, sync=False)
        return path.read_text(encoding="ascii")
    return ""


def remove_socket_directory(socket: Path) -> None:
    """Remove the socket and its directory."""
    remove_tree(socket.parent)


def hold(directory: Directory) -> None:
    """Keep agents that do not see the attempt's files from removing a socket's directory.

    The lock is held until its descriptor is closed, at the latest by the death of this process.
    """
    fcntl.flock(directory.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


def remove_abandoned() -> None:
    """Remove this user's socket directories whose attempts are gone with all of their files.

    Agents that were killed, and whose files somebody removed then, leave such.
    """
    for base in {base.absolute() for base in bases()}:
        with contextlib.suppress(OSError), os.scandir(base) as entries:
            names = [entry.name for entry in entries if ELSEWHERE.fullmatch(entry.name)]
            for name in names:
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(base / name)


def _remove_if_abandoned(path: Path) -> None:
    with Directory.at(path) as directory:
        if os.fstat(directory.fd).st_uid != os.geteuid():
            return
        owner = os.readlink(OWNER, dir_fd=directory.fd)
        try:
            os.lstat(owner)
        except (FileNotFoundError, NotADirectoryError):
            fcntl.flock(directory.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
