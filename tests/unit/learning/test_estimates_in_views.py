"""Estimates that hardly change are no news, and running tasks raise them for whoever looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.planning.snapshot_builder import revision, snapshot
from eva_master.learning.run_times.posterior import NONE_FINISHED
from eva_master.learning.runtimes import Traits
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import Estimate, Source
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.valuation.time_left import with_current_estimates
from eva_wire.values.ids import Millis
from tests.fakes.hand_driven import JOB, SETTINGS, Cluster
from tests.unit.learning.test_run_time_estimates import ARRAY, NEW, W, ended, exited

_TRAITS = Traits("w", "job", Millis(0), Resources(0, 1_000, 1_024))


def taken(cluster: Cluster, at: int = NEW) -> Snapshot:
    return snapshot(cluster.state, Millis(at), SETTINGS)


def learned(cluster: Cluster, *seconds: int) -> None:
    """Have earlier jobs of the same owner tell how long they took."""
    known = cluster.state.learned.run_times
    for took in seconds:
        known = known.observe("me", _TRAITS, NONE_FINISHED.plus(took * 1_000), Millis(0))
    cluster.state.set_learned(replace(cluster.state.learned, run_times=known))


def waiting() -> Cluster:
    """A job that waits, of whose like twenty have ended."""
    cluster = Cluster()
    ended(cluster, *[600] * 20)
    cluster.submit(W, name="new", at=NEW)
    taken(cluster)
    return cluster


# -- what is no news -------------------------------------------------------------------------------


def test_an_end_that_tells_nothing_new_leaves_views_as_they_are() -> None:
    cluster = waiting()
    before, number = taken(cluster), revision(cluster.state, Millis(NEW), SETTINGS)
    learned(cluster, 640)  # a sixteenth of the way to 640 s
    after = taken(cluster, NEW + 1)
    assert after.jobs[0] is before.jobs[0]
    assert after.runs[0] is before.runs[0]
    assert revision(cluster.state, Millis(NEW + 1), SETTINGS) == number
    assert cluster.outlook("new-21/0").estimate != before.jobs[0].progress.estimate, (
        "users see what is known"
    )


def test_what_changes_by_more_than_a_twentieth_is_told() -> None:
    cluster = waiting()
    (before,) = taken(cluster).jobs
    learned(cluster, 3_000)
    (after,) = taken(cluster).jobs
    assert before.progress.estimate is not None
    assert after.progress.estimate is not None
    assert after.progress.estimate.mean_ms > 1.05 * before.progress.estimate.mean_ms


def test_small_changes_add_up() -> None:
    cluster = waiting()
    told = []
    for _ in range(30):
        learned(cluster, 660)
        (job,) = taken(cluster).jobs
        assert job.progress.estimate is not None
        fresh = cluster.outlook("new-21/0").estimate
        assert fresh is not None
        assert job.progress.estimate.near(fresh)
        told.append(job.progress.estimate)
    assert 1 < len(set(told)) < 15
    assert told[-1].mean_ms > 620_000


def test_a_finished_task_of_the_same_job_is_always_news() -> None:
    cluster = Cluster()
    cluster.start(ARRAY)
    counts = []
    for index in range(4):
        exited(cluster, f"job-1/{index}", at=600_000)
        known = cluster.job_view("job-1").progress.estimate
        assert known is not None
        counts.append(known.tasks)
    assert counts == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("mean_ms", "log", "scale", "source", "tasks", "near"),
    [
        (1_000, 0, 0, Source.HISTORY, 0, True),
        (1_050, 0, 0, Source.HISTORY, 0, True),
        (1_051, 0, 0, Source.HISTORY, 0, False),
        (949, 0, 0, Source.HISTORY, 0, False),
        (1_000, 50_000, 0, Source.HISTORY, 0, True),
        (1_000, -50_001, 0, Source.HISTORY, 0, False),
        (1_000, 0, 9_000, Source.HISTORY, 0, True),
        (1_000, 0, 12_000, Source.HISTORY, 0, False),
        (1_000, 0, 0, Source.POSTERIOR, 0, False),
        (1_000, 0, 0, Source.HISTORY, 1, False),
    ],
)
def test_what_is_near(
    mean_ms: int, log: int, scale: int, source: Source, tasks: int, *, near: bool
) -> None:
    told = Estimate(1_000, log_ppm(1_000), 100_000, 20, Source.HISTORY)
    fresh = Estimate(mean_ms, log_ppm(1_000) + log, 100_000 + scale, 20, source, tasks)
    assert told.near(fresh) is near


# -- tasks that run for longer ---------------------------------------------------------------------


def overdue(tasks: int = 3) -> Cluster:
    """An array that runs, of whose like twenty took ten minutes."""
    cluster = Cluster()
    ended(cluster, *[600] * 20)
    cluster.start(W + f"kind: array\ntasks: {tasks}\n", name="new", at=NEW)
    return cluster


def test_users_are_told_that_tasks_take_longer_than_expected() -> None:
    cluster = overdue()
    cluster.handle(at=NEW + 300_000)
    told = cluster.outlook("new-21/0")
    assert told.estimate is not None
    assert told.estimate.mean_ms == pytest.approx(600_000, rel=0.05)
    cluster.handle(at=NEW + 4_000_000)
    for run in range(3):
        told = cluster.outlook(f"new-21/{run}")
        assert told.estimate is not None
        assert told.estimate.mean_ms == 5_000_000
        assert told.left_ms == 1_000_000


def test_a_finished_task_counts_beside_those_that_run_on() -> None:
    cluster = overdue(2)
    exited(cluster, "new-21/0", at=NEW + 600_000)
    cluster.handle(at=NEW + 4_000_000)
    told = cluster.outlook("new-21/1").estimate
    assert told is not None
    assert told.mean_ms == pytest.approx((600_000 + 5_000_000) / 2, rel=0.02)


def test_time_that_passes_makes_no_view_anew_and_policies_see_it_nevertheless() -> None:
    cluster = overdue()
    before = taken(cluster, NEW + 1)
    made, number = cluster.state.view_cache.made, cluster.state.view_cache.revision
    after = taken(cluster, NEW + 4_000_000)
    assert after.jobs is before.jobs
    assert after.runs is before.runs
    assert (cluster.state.view_cache.made, cluster.state.view_cache.revision) == (made, number)
    (job,) = with_current_estimates(after).jobs
    assert job.progress.estimate is not None
    assert job.progress.estimate.mean_ms == 5_000_000


def test_a_stated_duration_is_not_raised() -> None:
    cluster = Cluster()
    cluster.start(JOB + "kind: array\ntasks: 2\nduration: 10m\n", name="new", at=NEW)
    cluster.handle(at=NEW + 4_000_000)
    assert cluster.outlook("new-1/0").estimate == Estimate.stated(600_000)
