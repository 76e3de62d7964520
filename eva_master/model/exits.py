"""Exit codes of tasks, as shells tell them."""

from __future__ import annotations

from signal import Signals

_SIGNALLED = 128
"""A shell's exit code for a signal is the signal's number plus this."""
_NAMES = {number.value: number.name for number in Signals}


def shell_code(code: int) -> int:
    """Convert a code in which a signal is negative, as workers and older journals have it."""
    return _SIGNALLED + min(-code, _SIGNALLED - 1) if code < 0 else code


def described(code: int) -> str:
    """An exit code for people, with the signal that it stands for: ``137 (SIGKILL)``."""
    name = _NAMES.get(code - _SIGNALLED)
    return f"{code} ({name})" if name else str(code)
