"""Text files of users, and why they cannot be read, in words for them."""

from __future__ import annotations

from pathlib import Path

from eva_wire.values.errors import InvalidConfig


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Explain what reading a text file raised, without the words of Python."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not a text file in UTF-8"


def text_of(file: Path) -> str:
    """The text of a user's file; raises `InvalidConfig`."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise InvalidConfig(f"{file} cannot be read: {why_unreadable(failure)}") from failure
