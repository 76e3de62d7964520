"""The figures of one process: steps of many loops add up, checkpoints fall due."""

from __future__ import annotations

import math
import time

from eva_iterator._progress import Progress


def test_loops_and_explicit_steps_add_up() -> None:
    progress = Progress()
    first, second = progress.open(math.inf), progress.open(math.inf)
    first.steps, second.steps = 3, 4
    progress.add(5)
    assert progress.steps() == 12


def test_a_closed_loop_counts_once() -> None:
    progress = Progress()
    loop = progress.open(math.inf)
    loop.steps = 3
    loop.closed = True
    assert [progress.steps(), progress.steps()] == [3, 3]
    other = progress.open(math.inf)
    other.steps = 1
    assert progress.steps() == 4


def test_forgets_closed_loops() -> None:
    progress = Progress()
    for _ in range(100):
        progress.open(math.inf).closed = True
    progress.steps()
    assert progress._loops == []


def test_knows_whether_a_checkpoint_holds_all_steps() -> None:
    progress = Progress()
    assert not progress.unsaved()
    progress.add(1)
    assert progress.unsaved()
    progress.saved(3)
    assert not progress.unsaved()
    # Of those of other processes, and of one that it is about to note, it says nothing.
    assert [progress.saved_steps(it) for it in (0, 2, 3, 4)] == [0, 0, 1, 0]


def test_marks_the_loops_whose_checkpoint_is_due() -> None:
    progress = Progress()
    start = time.monotonic()
    progress.saved(1)
    never, often, seldom = (progress.open(every_s) for every_s in (math.inf, 10.0, 100.0))
    soonest = progress.mark_due(start)
    assert math.isclose(soonest, start + 10, abs_tol=5)
    assert (never.due, often.due, seldom.due) == (False, False, False)
    soonest = progress.mark_due(start + 20)
    assert (never.due, often.due, seldom.due) == (False, True, False)
    assert math.isclose(soonest, start + 100, abs_tol=5)


def test_an_interval_runs_from_the_last_checkpoint_of_any_loop() -> None:
    progress = Progress()
    loop = progress.open(10.0)
    loop.closed = True
    next_epoch = progress.open(10.0)
    progress.mark_due(time.monotonic() + 11)
    assert (loop.due, next_epoch.due) == (False, True)


def test_nothing_is_due_without_intervals() -> None:
    progress = Progress()
    progress.open(math.inf)
    assert progress.mark_due(1e12) == math.inf
