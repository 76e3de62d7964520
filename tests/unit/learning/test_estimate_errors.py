"""How estimates are compared with what jobs took."""

from __future__ import annotations

import pytest

from eva_lab.simulator.results.run_times import WatchedEstimates, accuracy, pilots_of, queue_of
from eva_master.model.planning.estimate import Estimate, Source
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import SLOT, TraceJob, TraceTask
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, Workload


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


class Idle:
    """A policy that plans nothing, and keeps what it is given to remember."""

    name = "idle"

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        assert snapshot.jobs
        return Plan(), memory


def seen(name: str, mean_ms: int | None, finished: int = 0) -> JobView:
    estimate = mean_ms and Estimate(mean_ms, 0, 0, 3, Source.POSTERIOR, finished)
    return job_view(JobId(name), JobKind.ARRAY, (), Millis(0), 0, estimate=estimate or None)


def test_estimates_are_noted_at_first_sight_and_once_pilots_are_done() -> None:
    hundred, thin = job("a-1", *[10] * 100), job("b-2", 10, 10)
    watched = WatchedEstimates(Idle(), [hundred, thin, job("c-3", *[10] * 100)])
    for views in (
        [seen("a-1-1", 500), seen("b-2-2", 7)],
        [seen("a-1-1", 600, 2), seen("c-3-3", None), seen("other-9", 8, 9)],
        [seen("a-1-1", 700, 4), seen("c-3-3", 900, 1)],
        [seen("a-1-1", 800, 9)],
    ):
        watched.plan(Snapshot(Millis(0), (), tuple(views), (), ()), None)
    # Three of a hundred tasks are pilots; two were done in the second snapshot, four in the third.
    assert watched.after_pilots == {"a-1": 700}
    assert watched.at_first == {"a-1": 500}, "of the third job nothing was known at first"
    assert watched.name == "idle"
