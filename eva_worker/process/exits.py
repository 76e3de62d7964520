"""Exit codes for people and parents, as shells tell them."""

from __future__ import annotations

_SIGNALLED = 128
"""A shell's exit code for a signal is the signal's number plus this."""


def shell_code(code: int) -> int:
    """Convert a code in which a signal is negative: 137 for SIGKILL, which is -9."""
    return _SIGNALLED + min(-code, _SIGNALLED - 1) if code < 0 else code
