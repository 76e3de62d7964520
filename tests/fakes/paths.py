"""Where tests put what has a socket in it."""

from __future__ import annotations

import os
import tempfile

_LONGEST = 30
"""The name of a socket has at most 107 bytes, most of which tests need themselves."""


def short_tempdir() -> str:
    """The temporary directory, or ``/tmp`` if its name is long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST else "/tmp"
