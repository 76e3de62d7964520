"""Isolation of tasks, whatever runs them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

UNPRIVILEGED = 65_532
"""User and group of tasks on workers that are root; it is nobody's on common systems."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """The operator's decisions on the isolation of tasks.

    Attributes:
        user: ``unprivileged`` for a user without rights where the worker is root, ``worker`` for
            the worker's own user.
        network: ``own`` for a network of each task's own, where the runtime has networks; gangs
            keep that of the machine. ``host`` for the machine's.
        processes: Most processes and threads of a task.
        open_files: Most open files of each process of a task.
    """

    user: str = "unprivileged"
    network: str = "own"
    processes: int = 4_096
    open_files: int = 65_536


def hand_over(tops: Iterable[Path], uid: int, gid: int) -> None:
    """Give directories, with all that is in them, to a user; links are not followed.

    Call it before anybody else can change them.

    Raises:
        OSError: One cannot be changed.
    """
    for top in tops:
        for _, directories, files, descriptor in os.fwalk(top, follow_symlinks=False):
            os.fchown(descriptor, uid, gid)
            for name in (*directories, *files):
                os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)


def let_in(socket_directory: Path, gid: int) -> None:
    """Let a group use the sockets in a directory of the worker's, and no more."""
    os.chown(socket_directory, -1, gid)
    socket_directory.chmod(0o710)
