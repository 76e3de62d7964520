"""Why a text file cannot be read, in words for its user."""

from __future__ import annotations


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Explain what reading a text file raised, without the words of Python."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not a text file in UTF-8"
