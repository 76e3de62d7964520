"""Tells which process is at the other end of a Unix socket, and what it descends from."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from pathlib import Path

from eva_worker.descriptors import Descriptor

_SO_PEERPIDFD = 77
"""Linux 6.5; `socket` has no name for it."""
_CREDENTIALS = struct.Struct("3i")
_TRIES = 3
"""Walks that are begun anew, because a process on the way ended meanwhile."""
_DEEPEST = 512
"""Ancestors that are looked at."""
_PARENT, _STARTED = 1, 19
"""Fields of /proc/PID/stat, counted from the third on."""


class Peer(Descriptor):
    """The process that has connected to a Unix socket.

    Args:
        connection: The accepted end.

    Attributes:
        pid: Its number in this process's namespace; 0 if it is not seen from there.
    """

    def __init__(self, connection: socket.socket) -> None:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid: int = _CREDENTIALS.unpack(raw)[0]
        super().__init__(_process_of(connection, self.pid))

    def lives(self) -> bool:
        """Whether the process has not ended, so that its number has not passed to another one."""
        if self.fd < 0:
            return False
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        return not poll.poll(0)


def _process_of(connection: socket.socket, pid: int) -> int:
    """A descriptor of the process at the other end, negative if it is gone."""
    with contextlib.suppress(OSError):  # An older kernel, or the process is gone.
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid) if pid else -1
    return -1


def descends(pid: int, ancestor: int, started: int | None = None) -> bool:
    """Whether a process is another one, or descends from it.

    A process that has lost its parent counts for the subreaper that has taken it over.

    Args:
        pid: The process.
        ancestor: The other one.
        started: When that began, in clock ticks, which tells it from a later one of its number;
            `None` if the caller knows that it lives.
    """
    return any(_walk(pid, ancestor, started) for _ in range(_TRIES))


def _walk(pid: int, ancestor: int, started: int | None) -> bool:
    born: int | None = None
    for _ in range(_DEEPEST):
        fields = _fields(pid)
        if fields is None:
            return False
        parent, began = int(fields[_PARENT]), int(fields[_STARTED])
        if born is not None and began > born:
            return False  # The process ended meanwhile, and a younger one has its number.
        if pid == ancestor:
            return started in {None, began}
        if parent == 0:
            return False
        pid, born = parent, began
    return False


def _fields(pid: int) -> list[bytes] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def in_control_group(pid: int, name: str) -> bool:
    """Whether a component of a process's control groups contains a name, such as a container's id.

    Args:
        pid: The process.
        name: The name, which only one control group has.
    """
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(name in line.split(":", 2)[-1] for line in lines)


def heads_a_namespace(pid: int) -> bool:
    """Whether a process is the first one of a namespace of process ids below this process's own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return False
    (numbers,) = [line.split()[1:] for line in lines if line.startswith("NSpid:")] or [[]]
    return len(numbers) > 1 and numbers[-1] == "1"
