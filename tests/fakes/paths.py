"""Names of programs and directories in which tests run: not everybody's are short and plain."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile

PYTHON = shlex.quote(sys.executable)
"""This Python, for commands that a shell reads: the checkout's path may have blanks."""

_LONGEST = 30
"""The name of a socket has at most 107 bytes, most of which tests need themselves."""


def short_tempdir() -> str:
    """For what has sockets in it: the temporary directory, or ``/tmp`` if its name is long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST else "/tmp"
