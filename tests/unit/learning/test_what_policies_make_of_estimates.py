"""Options of policies that decide what estimates of run times count for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import Estimate, Source
from eva_master.model.planning.plan import Assign
from eva_master.model.planning.snapshot import RemainingWork, Snapshot
from eva_master.packing.local_search.cost_model import CostWeights, MoveCosts
from eva_master.packing.parts.splitter import below
from eva_master.packing.problem import Problem, Valuation
from eva_master.policies import eva
from eva_master.testing.job_views import changed
from eva_policies import stratus
from eva_policies.cloudcoaster.order import first_served
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis
from tests.fakes.snapshots import START, Cluster, offer, task

HOUR_MS = 3_600_000
BOX = offer("box", (0, 16, 64), 0.8)
SMALL = task("small", any=(0, 4, 16))
TWELVE = task("twelve", any=(0, 12, 48))


def estimated(snapshot: Snapshot, job: str, hours: float, spread_ppm: int) -> Snapshot:
    """A snapshot in which nobody states how long a job takes."""
    mean = round(hours * HOUR_MS)
    freedom = 40
    scale = spread_ppm**2 * (freedom - 2) // freedom // 1_000_000
    known = Estimate(mean, log_ppm(mean), scale, freedom, Source.HISTORY)
    work = RemainingWork(mean, estimated=True)
    return replace(
        snapshot,
        jobs=tuple(changed(it, estimate=known) if it.id == job else it for it in snapshot.jobs),
        runs=tuple(replace(it, remaining=work) if it.job == job else it for it in snapshot.runs),
    )


# -- stratus ---------------------------------------------------------------------------------------


def placed(hours: float, spread_ppm: int, **options: int) -> str:
    """Beside whom Stratus places a task: one that runs for four hours, or one for an hour."""
    cluster = Cluster(BOX).instance("four", "box").instance("one", "box")
    cluster.job("a", TWELVE, on=["four"], left_s=4 * 3_600)
    cluster.job("b", TWELVE, on=["one"], left_s=3_600)
    snapshot = estimated(cluster.job("n", SMALL).snapshot(), "n", hours, spread_ppm)
    config = stratus.POLICY.config(**options)
    (entry,) = stratus.POLICY.build(config).plan(snapshot, None)[0].entries
    assert isinstance(entry, Assign)
    return str(entry.on)


def test_stratus_goes_by_an_estimate_that_is_sure() -> None:
    assert placed(1, 490_000) == "one"
    assert placed(1, 510_000) == "four", "as is assumed of all"
    assert placed(1, 490_000, sure_ppm=0) == "four"
    assert placed(1, 2_000_000, sure_ppm=2_500_000) == "one"


def test_stratus_goes_by_an_unsure_one_against_which_the_assumption_is_absurd() -> None:
    # A minute, give or take a factor of two: four hours would be eight spreads off.
    assert placed(1 / 60, 690_000) == "one"
    assert placed(1 / 60, 690_000, unlikely_ppm=0) == "four"
    assert placed(1, 690_000) == "four"


def test_in_stratus_tasks_that_wait_take_as_long_as_those_that_run_on() -> None:
    """Two tasks of an array have run for four hours of one that was expected."""
    cluster = Cluster(BOX).instance("four", "box").instance("one", "box")
    cluster.job("a", TWELVE, on=["four"], left_s=5 * 3_600)
    cluster.job("b", TWELVE, on=["one"], left_s=3_600)
    cluster.instance("n0", "box")
    cluster.job("n", TWELVE, SMALL, on=["n0", None], kind=JobKind.ARRAY)
    seen = estimated(cluster.snapshot(), "n", 1, 100_000)
    config = stratus.POLICY.config()

    def goes_to(began: int) -> str:
        work = RemainingWork(HOUR_MS, Millis(began), estimated=True)
        runs = tuple(replace(it, remaining=work) if it.id == "n/0" else it for it in seen.runs)
        plan, _ = stratus.POLICY.build(config).plan(replace(seen, runs=runs), None)
        (entry,) = [it for it in plan.entries if it.run == "n/1"]
        assert isinstance(entry, Assign)
        return str(entry.on)

    assert goes_to(START - HOUR_MS // 60) == "one"
    assert goes_to(START - 4 * HOUR_MS) == "four"


# -- eva -------------------------------------------------------------------------------------------


def mergeable(left_s: int | None, boot_s: int = 0) -> Snapshot:
    """Two half-filled boxes of which one would do; a move takes a minute."""
    booting = replace(BOX, type=replace(BOX.type, setup_ms=boot_s * 1_000))
    cluster = Cluster(booting).instance("i", "box").instance("j", "box")
    spec = task("w", any=(0, 8, 8))
    cluster.job("a", spec, on=["i"], left_s=left_s).job("b", spec, on=["j"], left_s=left_s)
    return cluster.snapshot()


def moved(left_s: int | None, boot_s: int = 0, **options: Any) -> int:
    plan, _ = eva.POLICY.build(eva.POLICY.config(**options)).plan(mergeable(left_s, boot_s), None)
    return sum(isinstance(entry, Assign) for entry in plan.entries)


def test_eva_leaves_alone_what_ends_before_a_move_pays() -> None:
    # A move takes a minute, in which two instances are held.
    assert moved(50) == moved(50, spare_ending=False) == moved(50, horizon_left=True) == 0
    for left_s in (None, 7_200):  # nothing is known of one, and there is much left of the other
        assert moved(left_s) == moved(left_s, horizon_left=True) == 1


def test_a_move_to_an_instance_that_is_there_pays_by_what_is_left_not_by_a_boot() -> None:
    assert moved(100) == moved(100, boot_s=300) == 1


def test_a_move_is_to_pay_within_what_is_left() -> None:
    def cost(left_s: int | None, **terms: Any) -> int:
        problem = Problem(mergeable(left_s), Valuation())
        return MoveCosts(problem, CostWeights(**terms)).cost["a/0"]

    assert cost(1_200) == cost(None)
    assert cost(1_200, horizon_left=True) == pytest.approx(3 * cost(1_200), rel=1e-6)
    assert cost(36_000, horizon_left=True) == cost(36_000)
    assert cost(None, horizon_left=True) == cost(None)
    assert cost(0, horizon_left=True) == pytest.approx(3_600 * cost(0), rel=1e-6)


# -- cloudcoaster ----------------------------------------------------------------------------------


def test_a_job_is_short_if_most_of_its_tasks_are_expected_to_be() -> None:
    """A few tasks that take many times as long make the mean larger than what is usual."""
    job = Cluster(BOX).job("a", SMALL).snapshot().jobs[0]
    mean, usual = 120_000, log_ppm(60_000)
    known = Estimate(mean, usual, 600_000, 20, Source.HISTORY)
    assert known.usual_ms == pytest.approx(60_000, abs=1)
    assert below(90_000)(changed(job, estimate=known))
    assert not below(50_000)(changed(job, estimate=known))
    assert not below(90_000)(changed(job, estimate=Estimate.stated(mean)))
    assert below(90_000)(changed(job, estimate=Estimate.stated(89_999)))
    assert not below(90_000)(job), "nothing is known of it"


def test_short_jobs_of_which_more_is_known_to_be_left_stand_further_back() -> None:
    cluster = Cluster(BOX).job("a", SMALL).job("b", SMALL)
    seen = estimated(estimated(cluster.snapshot(), "a", 0.02, 0), "b", 0.01, 0)
    order = first_served(seen.runs, seen.now_ms, 20_000, None)
    assert [it.id for it in sorted(seen.jobs, key=order)] == ["b", "a"]
