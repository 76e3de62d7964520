"""What is said of how long a workload's tasks take, from those that have finished."""

from __future__ import annotations

import json

import pytest

from eva_master.learning.bounds import ENTRIES_KEPT
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times import RunTimes
from eva_master.model.ids import Millis, Workload

W = Workload("w")


def seen(*took_ms: int) -> RunTimes:
    times = RunTimes()
    for at, took in enumerate(took_ms):
        times = times.observe(W, took, Millis(at))
    return times


@pytest.mark.parametrize(
    ("took_ms", "usual_ms"),
    [
        ((), None),
        ((100, 100), None),  # too few
        ((100, 110, 120), 110),
        ((100, 110, 151), None),  # too different
        ((100, 110, 120, 130, 9_000), 120),  # but for one
        ((100, 110, 120, 9_000, 9_000), None),
        ((1_234_567, 1_234_567, 1_234_567), 1_200_000),
    ],
)
def test_usual_is_what_the_middle_one_of_many_alike_took(
    took_ms: tuple[int, ...], usual_ms: int | None
) -> None:
    assert seen(*took_ms).usual_ms(W) == usual_ms
    assert seen(*reversed(took_ms)).usual_ms(W) == usual_ms


def test_a_workload_that_has_changed_is_known_after_nine_tasks() -> None:
    assert seen(*[100] * 9, *[900] * 9).usual_ms(W) == 900


def test_a_task_that_took_no_time_teaches_nothing() -> None:
    assert seen(0, -5).finished == {}


def test_the_workload_that_finished_longest_ago_is_forgotten_first() -> None:
    times = RunTimes()
    for number in range(ENTRIES_KEPT):
        times = times.observe(Workload(str(number)), 1, Millis(number))
    times = times.observe(Workload("0"), 1, Millis(ENTRIES_KEPT)).observe(
        W, 1, Millis(ENTRIES_KEPT + 1)
    )
    assert len(times.finished) == ENTRIES_KEPT
    assert Workload("0") in times.finished
    assert Workload("1") not in times.finished


def test_it_comes_back_from_the_journal() -> None:
    known = Knowledge(run_times=seen(100, 110, 120))
    assert Knowledge.from_json(json.loads(json.dumps(known.to_json()))) == known


def test_a_journal_without_it_is_read() -> None:
    written = Knowledge().to_json()
    del written["run_times"]
    assert Knowledge.from_json(written) == Knowledge()


@pytest.mark.parametrize("damaged", [{}, [["w", [], 1]], [["w", [0], 1]], [["w", ["1"], 1]], [1]])
def test_another_form_is_refused(damaged: object) -> None:
    with pytest.raises(ValueError, match="run times"):
        RunTimes.from_json(damaged)  # type: ignore[arg-type]
