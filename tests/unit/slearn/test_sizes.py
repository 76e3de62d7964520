"""How much work a job has, by its estimate and by the tasks of it that run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.planning.estimate import Estimate
from eva_master.testing.job_views import changed
from eva_master.testing.snapshots import START
from eva_policies.slearn.sizes import JobWork, work_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis
from tests.fakes.snapshots import Cluster, offer, task

ONE = task("w", any=(0, 1, 1))


def work(ages_s: list[int], waiting: int, each_s: int | None, succeeded: int = 0) -> JobWork:
    """Of a job with tasks that have run for so long, and others that wait or have succeeded."""
    places = [*["n1"] * len(ages_s), *[None] * waiting]
    cluster = Cluster(offer("n.99", (0, 99, 99), 1.0)).instance("n1", "n.99")
    cluster.job("job", *[ONE] * len(places), on=places, kind=JobKind.ARRAY)
    seen = cluster.snapshot()
    runs = [
        replace(run, running_since_ms=Millis(START - age * 1_000))
        for run, age in zip(seen.runs, ages_s, strict=False)
    ]
    job = changed(
        seen.jobs[0],
        size=len(places) + succeeded,
        succeeded=succeeded,
        succeeded_ms=succeeded * 7_000,
        estimate=None if each_s is None else Estimate.stated(each_s * 1_000),
    )
    return work_of(job, [*runs, *seen.runs[len(ages_s) :]], START)


def test_what_runs_is_half_done_and_what_waits_is_not() -> None:
    found = work([40, 10], waiting=3, each_s=100, succeeded=5)
    assert (found.whole_ms, found.left_ms) == (1_000_000, 60_000 + 90_000 + 300_000)
    assert found.had_ms == 5 * 7_000 + 50_000
    assert (found.waiting, found.started_ms) == (3, START - 10_000)


def test_a_task_that_runs_for_longer_makes_its_job_larger() -> None:
    # It is expected to take 500 s: with 3 of 100 s before it that is 200 s a task.
    found = work([400], waiting=2, each_s=100, succeeded=3)
    assert (found.whole_ms, found.left_ms) == (6 * 200_000, 100_000 + 2 * 200_000)


def test_nothing_is_known_of_a_job_without_an_estimate_but_what_it_has_had() -> None:
    found = work([40], waiting=2, each_s=None)
    assert (found.whole_ms, found.left_ms, found.had_ms) == (None, None, 40_000)


@pytest.mark.parametrize("ages_s", [[-1], [-(10**7), 5]])
def test_a_clock_that_went_back_takes_nothing_from_anybody(ages_s: list[int]) -> None:
    found = work(ages_s, waiting=1, each_s=100)
    assert found.had_ms == 1_000 * sum(max(0, it) for it in ages_s)
    assert found.left_ms == 1_000 * sum(100 - max(0, it) for it in ages_s) + 100_000
