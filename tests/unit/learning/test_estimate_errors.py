"""How estimates are compared with what jobs took."""

from __future__ import annotations

import pytest

from eva_master.model.ids import Workload
from eva_master.model.job import JobKind
from eva_master.model.trace import SLOT, TraceJob, TraceTask
from eva_master.simulation.results.run_times import accuracy, pilots_of, queue_of


def job(name: str, *seconds: int) -> TraceJob:
    tasks = tuple(TraceTask(SLOT, duration_ms=1_000 * one) for one in seconds)
    return TraceJob(name, Workload("w"), 0, 1, tasks, kind=JobKind.ARRAY)


@pytest.mark.parametrize(
    ("work_ms", "queue"),
    [(0, 0), (999_999, 0), (1_000_000, 1), (9_999_999, 1), (10_000_000, 2), (10**9, 4)],
)
def test_each_queue_takes_ten_times_as_much_work(work_ms: int, queue: int) -> None:
    assert queue_of(work_ms) == queue


def test_three_per_cent_of_the_tasks_are_pilots_and_at_least_one() -> None:
    assert [pilots_of(tasks) for tasks in (3, 33, 49, 51, 100, 150)] == [1, 1, 1, 2, 3, 4]


def test_errors_are_shares_of_what_tasks_took() -> None:
    jobs = job("a", 100, 200, 300), job("b", 400, 400, 400), job("c", 10, 10, 10), job("thin", 9, 9)
    estimates = {"a": 250_000, "b": 300_000, "c": 10_000}
    found = accuracy(estimates, jobs)
    assert (found.jobs, found.estimated) == (3, 3)
    # 50/200, 100/400, 0: and only the second job's 1,200 s become 900 s, which is another queue.
    assert found.p50 == pytest.approx(0.25)
    assert found.p90 == pytest.approx(0.25)
    assert found.right_queue == pytest.approx(2 / 3)


def test_jobs_without_an_estimate_are_counted_apart() -> None:
    jobs = job("a", 100, 100, 100), job("b", 100, 100, 100)
    found = accuracy({"b": 150_000}, jobs)
    assert (found.jobs, found.estimated, found.p50) == (2, 1, pytest.approx(0.5))
    assert accuracy({}, jobs).estimated == 0
