"""Traces in the form of Hawk's simulator: a job a line, with how long each of its tasks takes.

A line has the job's arrival, its number of tasks, their mean duration, and the duration of each,
times in seconds, with blanks between. Such files are stretches of the Yahoo trace and its like.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from eva_master.adapters.text.unreadable import why_unreadable
from eva_master.adapters.traces.rows import refusal
from eva_master.model.errors import InvalidTrace, Problem
from eva_master.model.job import MOST_TASKS

SUFFIXES = (".tr", ".tr.gz")
_MOST_BYTES = 2 << 30
"""Of a file as it is when it is unpacked."""
_LONGEST_S = 1e9
_FIRST = 3
"""The columns before the durations."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of such a trace.

    Attributes:
        at_ms: When it arrives, after the beginning of the trace.
        mean_ms: What the trace says of its tasks, at least 1.
        durations_ms: How long each takes, at least 1.
    """

    at_ms: int
    mean_ms: int
    durations_ms: tuple[int, ...]


def read_hawk(path: Path) -> tuple[Arrival, ...]:
    """Read a trace.

    Args:
        path: Of the file, which may be compressed with gzip.

    Returns:
        The jobs in their order, which is that of their arrivals.

    Raises:
        InvalidTrace: It cannot be read or is wrong; names the line of each problem.
    """
    problems: list[Problem] = []
    found: list[Arrival] = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            arrival = _arrival(line.split())
            if found and arrival.at_ms < found[-1].at_ms:
                raise ValueError("it arrives before the job in the line above")
            found.append(arrival)
        except ValueError as error:
            problems.append(Problem(str(error), line=number, column=1))
    if not found and not problems:
        problems.append(Problem("there is no job in it"))
    if problems:
        raise refusal(path, problems)
    return tuple(found)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as content:
            data = content.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise refusal(path, [Problem(f"it is larger than {_MOST_BYTES >> 30} GiB")])
        return data.decode("utf-8")
    except (EOFError, zlib.error) as error:
        raise refusal(path, [Problem(f"it is damaged: {error}")]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise refusal(path, [Problem(why_unreadable(error))]) from error


def _arrival(words: Sequence[str]) -> Arrival:
    """A job of the words of a line; raises `ValueError`, which says what is wrong."""
    if len(words) < _FIRST:
        raise ValueError("it lacks arrival, number of tasks or mean duration")
    tasks = _number(words[1], "a number of tasks")
    if tasks != int(tasks) or not 1 <= tasks <= MOST_TASKS:
        raise ValueError(f"{words[1]!r} is no number of tasks from 1 to {MOST_TASKS:,}")
    if len(words) - _FIRST != tasks:
        told = len(words) - _FIRST
        raise ValueError(f"it has {told:,} durations, and its number of tasks is {int(tasks):,}")
    durations = tuple(_lasting(word) for word in words[_FIRST:])
    return Arrival(_millis(_number(words[0], "an arrival")), _lasting(words[2]), durations)


def _lasting(word: str) -> int:
    return max(1, _millis(_number(word, "a duration")))


def _millis(seconds: float) -> int:
    return round(seconds * 1_000)


def _number(word: str, what: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _LONGEST_S or "_" in word:
        raise ValueError(f"{word[:40]!r} is not {what}")
    return number


def bootstrapped(
    stretches: Sequence[Sequence[Arrival]], jobs: int, block: int, random: np.random.Generator
) -> tuple[Arrival, ...]:
    """A longer trace that is like others, made of stretches of them with their own bursts.

    Args:
        stretches: The others, each of at least `block` jobs.
        jobs: How many it is to have.
        block: Jobs of a stretch, which are drawn with replacement. A job follows another one after
            the time that it followed its own predecessor.
        random: Draws them.

    Raises:
        InvalidTrace: A trace has fewer jobs than a block.
    """
    if any(len(stretch) < block for stretch in stretches):
        raise InvalidTrace(f"a trace has fewer jobs than a block of {block:,}")
    starts = [(stretch, at) for stretch in stretches for at in range(len(stretch) - block + 1)]
    gaps = {id(stretch): _gaps(stretch) for stretch in stretches}
    made: list[Arrival] = []
    now = 0
    while len(made) < jobs:
        stretch, begin = starts[int(random.integers(len(starts)))]
        for place in range(begin, min(begin + block, begin + jobs - len(made))):
            now += gaps[id(stretch)][place]
            made.append(replace(stretch[place], at_ms=now))
    return tuple(made)


def _gaps(stretch: Sequence[Arrival]) -> list[int]:
    """How long each job comes after the one before; the first comes at once."""
    return [0, *(later.at_ms - earlier.at_ms for earlier, later in pairwise(stretch))]


def denser(arrivals: Sequence[Arrival], load: float) -> Iterator[Arrival]:
    """The same jobs, `load` times as many in the same time, from the first one's arrival on."""
    first = arrivals[0].at_ms if arrivals else 0
    for arrival in arrivals:
        yield replace(arrival, at_ms=round((arrival.at_ms - first) / load))
