"""Shared by readers of files with a job a line: text that may be compressed, and its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from eva_lab.traces.rows import read_text
from eva_wire.values.bounds import MOST_TASKS

_LONGEST_S = 1e9


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, see `read_text`.

    Raises:
        InvalidTrace: The file cannot be read, is damaged or too large, or is not UTF-8.
    """
    return read_text(path).splitlines()


def telling(lines: Iterable[str], comment: str = "#") -> Iterator[tuple[int, str]]:
    """The lines that are neither blank nor a comment, with their numbers from 1 on."""
    for place, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith(comment):
            yield place, line


def number(word: str, what: str) -> float:
    """A number that is not negative, and at most a billion.

    Args:
        word: As it stands in the file.
        what: Meaning of the word, for the error, such as ``a duration``.

    Raises:
        ValueError: The word is no number; the message quotes it.
    """
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LONGEST_S or "_" in word:
        raise ValueError(f"{word[:40]!r} is not {what}")
    return value


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
        durations = len(words)
        raise ValueError(
            f"it has {durations:,} durations, and its number of tasks is {int(tasks):,}"
        )
    return tuple(map(duration, words))


def _millis(seconds: float) -> int:
    return round(seconds * 1_000)
