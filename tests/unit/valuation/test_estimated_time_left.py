"""Tasks that run for longer than expected say that the others of their job take longer, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.planning.estimate import Estimate, Source, raised_ms
from eva_master.model.planning.snapshot import RemainingWork, Snapshot
from eva_master.packing.valuation.time_left import with_current_estimates
from eva_master.testing.job_views import changed
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Millis
from tests.fakes.snapshots import START, Cluster, offer, task

ONE = task("w", any=(0, 1, 1))
BIG = offer("n.99", (0, 99, 99), 1.0)
MINUTE = 60_000


def guess(mean_ms: int, tasks: int = 0) -> Estimate:
    """An estimate that is not stated."""
    return Estimate(mean_ms, log_ppm(mean_ms), 90_000, 20, Source.POSTERIOR, tasks)


def seen(
    ages: list[int],
    waiting: int = 0,
    *,
    mean: int = 10,
    succeeded: int = 0,
    kind: JobKind = JobKind.ARRAY,
    estimated: bool = True,
) -> Snapshot:
    """A job whose tasks have run for so many minutes, and others that wait, of ten minutes each."""
    places = [*["n1"] * len(ages), *[None] * waiting]
    cluster = Cluster(BIG).instance("n1", "n.99")
    cluster.job("job", *[ONE] * len(places), on=places, kind=kind)
    found = cluster.snapshot()
    work = [
        RemainingWork(mean * MINUTE, Millis(START - age * MINUTE), estimated=estimated)
        for age in ages
    ] + [RemainingWork(mean * MINUTE, estimated=estimated)] * waiting
    estimate = guess(mean * MINUTE) if estimated else Estimate.stated(mean * MINUTE)
    return replace(
        found,
        jobs=(changed(found.jobs[0], estimate=estimate, succeeded=succeeded),),
        runs=tuple(replace(run, remaining=it) for run, it in zip(found.runs, work, strict=True)),
    )


def minutes_left(snapshot: Snapshot) -> list[float]:
    now = snapshot.now_ms
    works = (run.remaining for run in snapshot.runs)
    return [work.standalone_ms(now) / MINUTE for work in works if work is not None]


def mean_minutes(snapshot: Snapshot) -> float:
    (job,) = snapshot.jobs
    assert job.progress.estimate is not None
    return job.progress.estimate.mean_ms / MINUTE


def test_a_snapshot_in_which_nobody_runs_for_too_long_is_as_it_was() -> None:
    for ages in ([], [3], [10, 1]):
        before = seen(ages, waiting=2)
        assert with_current_estimates(before) is before


def test_the_others_take_longer_as_well() -> None:
    # 40 minutes of an expected 10: it is taken for 50, and with three of ten minutes it makes 20.
    before = seen([40, 2], waiting=1, succeeded=2)
    after = with_current_estimates(before)
    assert mean_minutes(after) == (2 * 10 + 50 + 10) / 4
    assert minutes_left(after) == [10, 18, 20]  # a quarter of its age; 20 less 2; 20
    assert minutes_left(before) == [10, 8, 10]


def test_one_straggler_among_many_changes_little() -> None:
    assert mean_minutes(with_current_estimates(seen([40], waiting=1, succeeded=399))) == 10.1


def test_the_centre_rises_as_the_mean_does_and_the_spread_stays() -> None:
    before = guess(10 * MINUTE)
    after = before.raised(0, [40 * MINUTE])
    assert after.mean_ms == 50 * MINUTE
    assert exp_of_ppm(after.log) == pytest.approx(50 * MINUTE, rel=1e-5)
    assert after.spread_ppm == before.spread_ppm
    assert after.exceeds_ppm(40 * MINUTE) > MILLION // 2 > before.exceeds_ppm(40 * MINUTE)


def test_what_is_stated_stands() -> None:
    before = seen([40, 2], waiting=1, estimated=False)
    assert with_current_estimates(before) is before
    assert Estimate.stated(MINUTE).raised(0, [MINUTE * 9]) == Estimate.stated(MINUTE)


def test_members_of_a_gang_are_one_observation() -> None:
    assert (
        mean_minutes(with_current_estimates(seen([16] * 3, succeeded=0, kind=JobKind.GANG))) == 20
    )


def test_a_second_run_of_a_task_says_nothing() -> None:
    before = seen([40, 2])
    runs = tuple(replace(run, replica=1) for run in before.runs)
    extra = replace(before, runs=runs)
    assert with_current_estimates(extra) is extra


def test_tasks_of_another_kind_take_as_much_longer_as_the_others() -> None:
    before = seen([20], waiting=1)  # taken for 25 of an expected 10
    short = replace(before.runs[1], remaining=RemainingWork(4 * MINUTE, estimated=True))
    after = with_current_estimates(replace(before, runs=(before.runs[0], short)))
    assert minutes_left(after) == [5, 10]


def test_what_is_left_never_becomes_less() -> None:
    for left in (0, 1, 9 * MINUTE, 50 * MINUTE):
        for ran in (0, 7 * MINUTE, 100 * MINUTE):
            work = RemainingWork(left, estimated=True, ran_ms=ran)
            longer = work.longer(10 * MINUTE, 25 * MINUTE)
            assert longer.standalone_ms(START) >= work.standalone_ms(START)


def test_a_mean_is_raised_by_those_that_are_older_alone() -> None:
    assert raised_ms(100, 5, []) == 100
    assert raised_ms(100, 5, [100, 3]) == 100
    assert raised_ms(100, 0, [101]) == 126
    assert raised_ms(100, 3, [400]) == 200
