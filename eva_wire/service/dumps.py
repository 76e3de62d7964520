"""Keeps the memory of a process that has secrets out of dumps."""

from __future__ import annotations

import contextlib
import resource

NONE = 1
"""Limit of dumps, in bytes. A program that gets dumps, such as systemd's, is called with a limit of
0 too, and keeps the environment; the kernel calls none where the limit is 1."""


def leave_no_dumps() -> None:
    """Have the kernel write no dump of this process's memory, nor of those that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    most = most if most == resource.RLIM_INFINITY else max(most, NONE)
    with contextlib.suppress(OSError, ValueError):  # Only root may raise a limit of 0.
        resource.setrlimit(resource.RLIMIT_CORE, (NONE, most))
