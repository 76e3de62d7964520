"""Shared by readers of files with a job a line: text that may be compressed, and its numbers."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from eva_master.adapters.text.unreadable import why_unreadable
from eva_master.adapters.traces.rows import refusal
from eva_master.model.errors import Problem
from eva_master.model.job import MOST_TASKS

_MOST_BYTES = 2 << 30
"""Of a file as it is when it is unpacked."""
_LONGEST_S = 1e9


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, which may be compressed with gzip.

    Raises:
        InvalidTrace: It cannot be read, is damaged or too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as content:
            data = content.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise refusal(path, [Problem(f"it is larger than {_MOST_BYTES >> 30} GiB")])
        return data.decode("utf-8").splitlines()
    except (EOFError, zlib.error) as error:
        raise refusal(path, [Problem(f"it is damaged: {error}")]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise refusal(path, [Problem(why_unreadable(error))]) from error


def number(word: str, what: str) -> float:
    """A number that is not negative, and at most a billion.

    Args:
        word: As it stands in the file.
        what: What it is to be, for the error, such as ``a duration``.

    Raises:
        ValueError: It is none; says which word.
    """
    try:
        found = float(word)
    except ValueError:
        found = math.nan
    if not 0 <= found <= _LONGEST_S or "_" in word:
        raise ValueError(f"{word[:40]!r} is not {what}")
    return found


def arrival_ms(word: str) -> int:
    """An arrival in seconds as milliseconds; raises `ValueError` if it is none."""
    return _millis(number(word, "an arrival"))


def duration_ms(word: str) -> int:
    """A duration in seconds as milliseconds, at least 1; raises `ValueError` if it is none."""
    return max(1, _millis(number(word, "a duration")))


def durations_ms(
    count: str, words: Sequence[str], duration: Callable[[str], int] = duration_ms
) -> tuple[int, ...]:
    """How long each task of a job takes, in milliseconds.

    Args:
        count: The job's number of tasks.
        words: Their durations.
        duration: Reads one of them.

    Raises:
        ValueError: One of them is wrong, or they are not as many as the job has tasks.
    """
    tasks = number(count, "a number of tasks")
    if tasks != int(tasks) or not 1 <= tasks <= MOST_TASKS:
        raise ValueError(f"{count!r} is no number of tasks from 1 to {MOST_TASKS:,}")
    if len(words) != tasks:
        told = len(words)
        raise ValueError(f"it has {told:,} durations, and its number of tasks is {int(tasks):,}")
    return tuple(map(duration, words))


def _millis(seconds: float) -> int:
    return round(seconds * 1_000)
