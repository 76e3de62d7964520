"""Findings of the checker of kills and pauses in the records of tasks."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import Line
from tests.faults.checker import chain_faults, task_faults


def _line(text: str, at_ms: int) -> Line:
    """A line of ``EVENT ATTEMPT STEP``; each attempt has a process of its own, unless stated."""
    event, attempt, step, *pid = text.split()
    return Line(event, int(attempt), int(pid[0] if pid else attempt), at_ms, int(step))


def _lines(text: str) -> list[Line]:
    return [_line(it.strip(), at) for at, it in enumerate(text.split(","))]


RESUMED = "start 1 0, step 1 1, checkpoint 1 1, step 1 2, start 2 1, step 2 2, end 2 2"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (RESUMED, []),
        ("start 1 0, step 1 1, step 1 3, end 1 3", ["step 3 came after 1"]),
        (
            "start 1 0, step 1 1, step 1 2, start 2 2, end 2 2",
            ["attempt 2 began at step 2, which nobody has stored"],
        ),
        ("start 1 0, step 1 1, overlap 2 0, end 2 0", ["ran twice at a time"]),
        ("start 2 0, start 1 0, end 1 0", ["ran twice at a time"]),
        ("start 1 0, step 1 1 7, end 1 1", ["attempt 1 ran twice"]),
        ("start 1 0, step 1 1", ["its last attempt came to no end"]),
        ("", ["its last attempt came to no end"]),
    ],
)
def test_records_of_a_task(text: str, found: list[str]) -> None:
    assert list(task_faults(_lines(text) if text else [], None)) == found


def test_a_task_may_not_begin_after_a_client_was_told_of_its_end() -> None:
    assert list(task_faults(_lines(RESUMED), 4)) == []
    told = ["attempt 2 began after a client was told of the end"]
    assert list(task_faults(_lines(RESUMED), 3)) == told


def test_a_member_of_a_gang_may_begin_from_what_another_one_has_stored() -> None:
    lines = _lines("start 1 0, start 2 3, step 2 4, end 2 4")
    assert list(task_faults(lines, None, _lines("start 1 0, checkpoint 1 3"))) == []
    told = ["attempt 2 began at step 3, which nobody has stored"]
    assert list(task_faults(lines, None, _lines("start 1 0, checkpoint 1 2"))) == told


def test_a_chain_keeps_its_order() -> None:
    lines = _lines("start 1 0, end 1 0, start 1 0, end 1 0")
    assert list(chain_faults(lines[:2], lines[2:])) == []
    assert list(chain_faults(lines[2:], lines[:2])) == ["began before its predecessor had ended"]
