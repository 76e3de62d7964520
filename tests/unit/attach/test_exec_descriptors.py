"""The agent's descriptors when the machine has no more for a command."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eva_worker.errors import AttachRefused
from eva_worker.runtime.attaching import AttachedCommand, Size
from eva_worker.runtime.process import execs


def failing(real: Callable[[], Any], made: int) -> Callable[[], Any]:
    """A call that works so many times, and then finds no descriptor left."""
    left = [None] * made

    def call() -> Any:
        if not left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        left.pop()
        return real()

    return call


def opened() -> set[str]:
    """Descriptors of this process, with what each of them is."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # That of the listing itself.
            found.add(f"{entry.name} {entry.readlink()}")
    return {entry for entry in found if "/proc/" not in entry}


@pytest.mark.parametrize(
    ("module", "name", "made", "terminal"),
    [
        (os, "pipe", 0, None),
        (os, "pipe", 1, None),
        (os, "pipe", 2, None),
        (pty, "openpty", 0, Size(24, 80)),
        (socket, "socketpair", 0, None),
        (socket, "socketpair", 0, Size(24, 80)),
    ],
)
async def test_a_command_without_descriptors_leaves_none_open(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    made: int,
    terminal: Size | None,
) -> None:
    command = AttachedCommand("command", ("true",), terminal)
    before = opened()
    with monkeypatch.context() as few:
        few.setattr(module, name, failing(getattr(module, name), made))
        with pytest.raises(AttachRefused, match="Too many open files"):
            await execs.begin(tmp_path, command)
    assert opened() == before
