"""A `max_duration` that the stated `duration` exceeds for certain is refused, no other one is."""

from __future__ import annotations

import pytest

from eva_wire.jobfile import check_job
from eva_wire.values.errors import InvalidJob

JOB = "name: a\nrun: 'true'\nresources: {cpus: 1, memory: 1GiB}\n"
ARRAY = "kind: array\nduration: 5m\n"
TWO_SPEEDS = "throughput: {c7i: 1, r7i: 2}\nduration: 8m\n"
ELASTIC = "duration: 8m\ntasks: {least: 1, most: 4}\n"
BEYOND_LINEAR = "duration: 8m\ntasks: {least: 1, most: 4, throughput: {1: 1, 4: 8}}\n"
FORKS = "forks: 4\ntotal_steps: 100\nduration: 8m\n"


@pytest.mark.parametrize(
    ("text", "limit", "least"),
    [
        ("duration: 10m\n", "599s", "10m"),
        ("tasks: 3\nduration: 10m\n", "9m", "10m"),
        (ARRAY + "tasks: 4\nconcurrency: 1\n", "8m", "20m"),
        (ARRAY + "tasks: 5\nconcurrency: 2\n", "14m", "15m"),
        (ARRAY + "tasks: 5\nconcurrency: 9\n", "4m", "5m"),
        (TWO_SPEEDS, "239s", "4m"),
        (ELASTIC, "119s", "2m"),
        (BEYOND_LINEAR, "59s", "1m"),
        (FORKS, "119s", "2m"),
    ],
)
def test_what_fails_for_certain_is_refused(text: str, limit: str, least: str) -> None:
    check_job(f"{JOB}{text}max_duration: {least}\n", file_name="j.yaml")
    with pytest.raises(InvalidJob) as refused:
        check_job(f"{JOB}{text}max_duration: {limit}\n", file_name="j.yaml")
    (problem,) = refused.value.problems
    assert problem.key == "max_duration"
    assert f"failed after {limit}, and it takes {least} at least" in problem.message
    assert f"write {least} or more" in problem.hint


def test_an_array_is_told_that_it_counts_as_a_whole() -> None:
    text = f"{JOB}{ARRAY}tasks: 4\nconcurrency: 1\nmax_duration: 8m\n"
    with pytest.raises(InvalidJob, match="counts the whole array, 4 tasks with a `concurrency`"):
        check_job(text, file_name="j.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "max_duration: 1s\n",
        "total_steps: 1000\nthroughput: 1\nmax_duration: 1s\n",
        ARRAY + "tasks: 400\nmax_duration: 8m\n",
    ],
)
def test_what_may_succeed_is_accepted(text: str) -> None:
    check_job(JOB + text, file_name="j.yaml")
