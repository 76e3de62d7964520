"""The pace of a task over a window, without the pauses in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

Mark = tuple[int, int]
"""A time in milliseconds at which a task was heard to have got on, and its steps by then."""

_PAUSE_FROM_FACTOR = 3
"""A stretch that took so many times the usual time, and that of a step more since reports cut steps
in two, had a pause in it."""
_STRETCHES_TO_JUDGE = 5
"""With fewer stretches nobody can say what is usual."""


def pace(marks: Sequence[Mark]) -> float | None:
    """Steps per second over a window.

    A stretch from one mark to the next that took more than three times as long as its steps, and
    one more, take by the median is left out, with its steps and its time: there the task stored a
    checkpoint, was evaluated or waited. Of fewer than five stretches all count.

    Args:
        marks: In order; time and steps never go back.

    Returns:
        Positive and finite; `None` if no time passed or no step was done.
    """
    stretches = [
        (later[0] - earlier[0], later[1] - earlier[1])
        for earlier, later in pairwise(marks)
        if later[1] > earlier[1]
    ]
    if len(stretches) >= _STRETCHES_TO_JUDGE:
        usual = median(elapsed / steps for elapsed, steps in stretches)
        steady = [
            (ms, steps) for ms, steps in stretches if ms <= _PAUSE_FROM_FACTOR * usual * (steps + 1)
        ]
        stretches = steady if usual > 0 else stretches
    elapsed = sum(ms for ms, _ in stretches)
    return sum(steps for _, steps in stretches) * 1000 / elapsed if elapsed > 0 else None
