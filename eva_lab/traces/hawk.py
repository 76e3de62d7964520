"""Traces in the form of Hawk's simulator: a job a line, with how long each of its tasks takes.

A line has the job's arrival, its number of tasks, their mean duration, and the duration of each,
times in seconds, with blanks between. Stretches of the Yahoo trace have this form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from eva_lab.traces.lines import arrival_ms, duration_ms, durations_ms, read_lines, telling
from eva_lab.traces.rows import refusal
from eva_wire.values.errors import InvalidTrace, Problem

_FIRST = 3
"""The columns before the durations."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of such a trace.

    Attributes:
        at_ms: When it arrives, after the beginning of the trace.
        mean_ms: Mean duration of its tasks that the trace states, at least 1.
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
        InvalidTrace: The file cannot be read or is wrong; names the line of each problem.
    """
    problems: list[Problem] = []
    arrivals: list[Arrival] = []
    for number, line in telling(read_lines(path)):
        try:
            arrival = _arrival(line.split())
            if arrivals and arrival.at_ms < arrivals[-1].at_ms:
                raise ValueError("it arrives before the job in the line above")
            arrivals.append(arrival)
        except ValueError as error:
            problems.append(Problem(str(error), line=number, column=1))
    if not arrivals and not problems:
        problems.append(Problem("there is no job in it"))
    if problems:
        raise refusal(path, problems)
    return tuple(arrivals)


def _arrival(words: Sequence[str]) -> Arrival:
    """A job of the words of a line; raises `ValueError`, which says what is wrong."""
    if len(words) < _FIRST:
        raise ValueError("it lacks arrival, number of tasks or mean duration")
    durations = durations_ms(words[1], words[_FIRST:])
    return Arrival(arrival_ms(words[0]), duration_ms(words[2]), durations)


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
    """The arrivals, `load` times as many in equal time, from the first one on."""
    first = arrivals[0].at_ms if arrivals else 0
    for arrival in arrivals:
        yield replace(arrival, at_ms=round((arrival.at_ms - first) / load))
