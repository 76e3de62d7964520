"""Names of programs and directories in which tests run: not everybody's are short and plain."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PYTHON = shlex.quote(sys.executable)
"""This Python, for commands that a shell reads: the checkout's path may have blanks."""

_LONGEST = 30
"""The name of a socket has at most 107 bytes, most of which tests need themselves."""


def short_tempdir() -> str:
    """For what has sockets in it: the temporary directory, or ``/tmp`` if its name is long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST else "/tmp"


@contextlib.contextmanager
def plain_name(directory: Path) -> Iterator[tuple[str, int]]:
    """Give a directory a name without blanks, for scripts into which it is put unquoted.

    Args:
        directory: Existing directory with any name.

    Yields:
        The name, for processes that inherit the file descriptor, and that descriptor.
    """
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}", descriptor
    finally:
        os.close(descriptor)
