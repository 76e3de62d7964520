"""Starts, recognises, awaits and removes host processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from eva_master.adapters.local.signals import TAKE_BACK

MARK = "EVA_HOST"
"""Environment variable that names the instance a process belongs to."""


class Gate:
    """A started host, which waits for `open` before it does anything.

    If this process dies first, the host ends without a trace.
    """

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def open(self) -> None:
        """Let the host begin. If it has died by now, whoever awaits it will notice."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._descriptor, b".")
        self.close()

    def close(self) -> None:
        """Release the host, which ends unless it was told to begin."""
        os.close(self._descriptor)


def spawn(command: list[str], environment: Mapping[str, str], log: Path) -> Gate:
    """Start a process in a session of its own, with its output in a file.

    `TAKE_BACK` is blocked there, so that one which comes before it is heeded is neither lost nor
    the end of the process.

    Raises:
        OSError: The process could not be started.
    """
    reader, writer = os.pipe()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            command[0],
            command,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reader, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[TAKE_BACK],
        )
    except OSError:
        os.close(writer)
        raise
    finally:
        os.close(reader)
    return Gate(pid, writer)


def birth(pid: int) -> str | None:
    """Tell a process from a later one with the same pid, even after a reboot.

    Returns:
        Boot id and clock tick of its start; `None` if it does not run.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; the fields from the third on follow its end.
    fields = stat.rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X"):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19].decode()}"


class Handle:
    """A running process, held so that its pid cannot be reused.

    Attributes:
        exited: Set when the process has ended; nothing polls for it.
    """

    def __init__(self, descriptor: int) -> None:
        self.exited = asyncio.Event()
        self._descriptor = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self.exited.set)

    @classmethod
    def take(cls, pid: int, born: str) -> Handle | None:
        """Hold a process. Call it in an event loop.

        Args:
            pid: Its pid.
            born: Its `birth`.

        Returns:
            `None` if it does not run any more.
        """
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        # The birth can only be compared now that the pid is held.
        if birth(pid) == born:
            return cls(descriptor)
        _let_go(descriptor)
        return None

    def kill(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def close(self) -> None:
        """Release the process, which keeps running."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        _let_go(self._descriptor)


def _let_go(descriptor: int) -> None:
    """Close a pidfd; reap the process first if it is an ended child."""
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
    os.close(descriptor)


def signal_to(pid: int, born: str, number: signal.Signals) -> bool:
    """Send a signal to a process, never to a later one with the same pid.

    Args:
        pid: Its pid.
        born: Its `birth`.
        number: The signal.

    Returns:
        Whether it still ran.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The birth can only be compared now that the pid is held.
        if birth(pid) != born:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def marked(value: str) -> list[psutil.Process]:
    """Running processes with the mark of an instance, and all of their descendants."""
    running: dict[int, psutil.Process] = {}
    below: dict[int, list[int]] = {}
    unseen: list[int] = []
    for pid in psutil.pids():
        try:
            process = psutil.Process(pid)
            seen = process.as_dict(["ppid", "environ", "status"])
        except psutil.NoSuchProcess:
            continue
        if seen["status"] == psutil.STATUS_ZOMBIE:
            continue
        running[pid] = process
        below.setdefault(seen["ppid"], []).append(pid)
        # The environment of other users' processes is not readable.
        if (seen["environ"] or {}).get(MARK) == value:
            unseen.append(pid)
    processes: dict[int, psutil.Process] = {}
    while unseen:
        pid = unseen.pop()
        if pid not in processes:
            processes[pid] = running[pid]
            unseen += below.get(pid, [])
    return list(processes.values())


def clear(value: str) -> bool:
    """Kill all remaining processes of an instance.

    Returns:
        Whether nothing was left; otherwise call again to see that it is dead.
    """
    processes = marked(value)
    # All are stopped before the first is killed. Otherwise one could see others die and report a
    # task as failed, which a machine that loses power never does.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.send_signal(number)
    return not processes


def remove_groups(file: Path) -> None:
    """Remove the control groups of an instance without processes.

    Args:
        file: Where its worker wrote down the directories that they are in.
    """
    with contextlib.suppress(OSError, ValueError):
        for top in map(Path, json.loads(file.read_text())):
            for group in (*top.glob("*/"), top):
                with contextlib.suppress(OSError):
                    group.rmdir()


def remove_disk(disk: Path) -> None:
    """Remove the files of an instance without processes; links are not followed.

    Tasks may leave trees of any depth, and directories that nobody may read.
    """
    open_up = ["-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
    for command in (["find", str(disk), *open_up], ["rm", "-rf", "--", str(disk)]):
        subprocess.run(command, check=False, capture_output=True)
