"""Finds processes again, by their ids and start times or by their environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

_POLL_S = 0.02


@contextlib.contextmanager
def pidfd(pid: int, started: int) -> Iterator[int]:
    """Open a descriptor of a process, which need not be a child.

    Args:
        pid: Its id, which may belong to another process by now.
        started: Its start time in clock ticks, which tells the two apart.

    Raises:
        ProcessLookupError: The process is gone.
    """
    descriptor = os.pidfd_open(pid)
    try:
        # Checked while the descriptor is open, so the pid cannot be reused in between.
        if started_at(pid) != started:
            raise ProcessLookupError(pid)
        yield descriptor
    finally:
        os.close(descriptor)


def started_at(pid: int) -> int:
    """When a process began, in clock ticks since the boot.

    Raises:
        ProcessLookupError: The process is gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    return int(stat.rpartition(b")")[2].split()[19])


async def readable(descriptor: int) -> None:
    """Wait until there is something to read; of the descriptor of a process, until it has ended."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def kill_marked(marks: Mapping[str, str | None]) -> None:
    """Kill every process of this machine whose environment has some variables; blocks.

    Args:
        marks: The variables; nothing is killed if there are none, or if one has no value.
    """
    if None in marks.values() or not marks:
        return
    while processes := [process for process in psutil.process_iter() if _bears(process, marks)]:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=_POLL_S)


def family(pid: int) -> list[int]:
    """A process and all of its descendants; none if it is gone."""
    try:
        descendants = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [pid, *(process.pid for process in descendants)]


def marked(pid: int, name: str) -> bool:
    """Whether the environment of a process has a variable; false if that cannot be seen."""
    try:
        return name in psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return False


def _bears(process: psutil.Process, marks: Mapping[str, str | None]) -> bool:
    try:
        env = process.environ()
        return all(env.get(name) == value for name, value in marks.items())
    except (psutil.Error, OSError):
        return False
