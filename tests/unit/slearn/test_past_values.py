"""The last run times of a feature value, and what 3Sigma and the median expect by them."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from statistics import fmean, median

import pytest

from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times.past_values import KEPT, NO_VALUES, PastValues, kept_for
from eva_master.learning.run_times.posterior import NONE_FINISHED
from eva_master.learning.runtimes import JobFeature, RunTimes, Traits
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimates, Source
from eva_master.model.planning.plan import Json
from eva_master.model.resources import Resources
from eva_wire.values.ids import Millis
from tests.fakes.hand_driven import JOB, SETTINGS, Cluster
from tests.unit.learning.test_run_time_estimates import NEW, W, ended, estimate, restarted

TRAITS = Traits("w", "job", Millis(0), Resources(0, 1_000, 2_048))


def values(*times_ms: int) -> PastValues:
    return PastValues.of(log_ppm(it) for it in times_ms)


def useful_ms(times_ms: list[int]) -> float:
    """By the utility's mean, in floating point and with nothing of the program's."""
    return 1.0 / math.sqrt(fmean(1.0 / float(it) ** 2 for it in times_ms))


def drawn_times(seed: int, count: int) -> list[int]:
    rng = random.Random(seed)
    return [max(1, round(rng.lognormvariate(11, rng.uniform(0.1, 2)))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_both_rules_are_what_they_are_said_to_be(seed: int) -> None:
    times = drawn_times(seed, 1 + seed * 7)
    known = values(*times)
    assert known.usual_ms(Estimates.POINT) == pytest.approx(median(times), rel=2e-5, abs=1)
    assert known.usual_ms(Estimates.THREE_SIGMA) == pytest.approx(useful_ms(times), rel=2e-4, abs=1)


@pytest.mark.parametrize(
    ("times", "middle", "useful"),
    [
        ([1], 1, 1),
        ([60_000], 60_000, 60_000),
        ([1_000, 3_000], 2_000, 1_341.6),  # 1000 * sqrt(2 / (1 + 1/9))
        ([1_000, 1_000_000, 1_000_000], 1_000_000, 1_732.0),  # one short time decides
        ([LONGEST_MS] * 3, LONGEST_MS, LONGEST_MS),
    ],
)
def test_small_examples(times: list[int], middle: int, useful: float) -> None:
    known = values(*times)
    assert known.usual_ms(Estimates.POINT) == pytest.approx(middle, rel=2e-5, abs=1)
    assert known.usual_ms(Estimates.THREE_SIGMA) == pytest.approx(useful, rel=1e-3, abs=1)


def test_the_order_of_the_values_does_not_matter() -> None:
    times = drawn_times(3, 99)
    for mode in (Estimates.POINT, Estimates.THREE_SIGMA):
        found = {values(*order).usual_ms(mode) for order in (times, times[::-1], sorted(times))}
        assert len(found) == 1


# -- how many are kept -----------------------------------------------------------------------------


def test_values_are_kept_only_for_those_who_need_them() -> None:
    needs = {mode: kept_for(mode) for mode in Estimates}
    assert {mode for mode, kept in needs.items() if kept} == {
        Estimates.THREE_SIGMA,
        Estimates.POINT,
        Estimates.SLEARN_DAG,
    }
    assert set(needs.values()) == {0, KEPT}


def test_the_last_values_stay() -> None:
    known = NO_VALUES
    for log in range(0, 20, 2):
        known = known.plus(log, 4)
    assert known.logs == (12, 14, 16, 18)
    assert known.plus(21, 2).logs == (18, 20), "to two millionths"
    assert known.plus(10, 0) == NO_VALUES, "nobody needs them any more"
    times = RunTimes()
    for at in range(KEPT + 25):
        times = times.observe("me", TRAITS, NONE_FINISHED.plus(1_000 + at), Millis(at), KEPT)
    (known,) = {it.last for it in times.of("me").spreads.values()}
    assert len(known.logs) == KEPT
    assert known.logs[-1] == pytest.approx(log_ppm(1_000 + KEPT + 24), abs=1)
    assert known.logs[0] == pytest.approx(log_ppm(1_000 + 25), abs=1)
    assert len(known.packed) == 3 * KEPT, "three bytes each"


def test_the_mean_of_a_job_s_tasks_is_its_value() -> None:
    times = RunTimes().observe("me", TRAITS, NONE_FINISHED.plus(1_000).plus(9_000), Millis(0), KEPT)
    (found,) = {it.last.logs for it in times.of("me").spreads.values()}
    assert found == pytest.approx([log_ppm(5_000)], abs=1)


# -- the journal -----------------------------------------------------------------------------------


def learned(kept: int) -> RunTimes:
    times = RunTimes()
    for at, took in enumerate(drawn_times(1, 12)):
        times = times.observe("me", TRAITS, NONE_FINISHED.plus(took), Millis(at), kept)
    return times


@pytest.mark.parametrize("kept", [0, 5, KEPT])
def test_values_survive_the_journal(kept: int) -> None:
    times = learned(kept)
    written = json.loads(json.dumps(Knowledge(run_times=times).to_json()))
    assert Knowledge.from_json(written).run_times == times
    rows = written["runtimes"][0][1]
    # Without values a document is what it was before there were any.
    assert {len(row) for row in rows} == {2 + 8 + (1 if kept else 0)}


def test_a_document_without_values_is_read_and_goes_on_with_them() -> None:
    old = RunTimes.from_json(json.loads(json.dumps(learned(0).to_json())))
    assert {it.last for it in old.of("me").spreads.values()} == {NO_VALUES}
    more = old.observe("me", TRAITS, NONE_FINISHED.plus(1_000), Millis(99), KEPT)
    assert {it.last for it in more.of("me").spreads.values()} == {values(1_000)}


@pytest.mark.parametrize(
    "data",
    [7, {}, "x", [-1], [True], [1.5], ["1"], [[1]], [log_ppm(LONGEST_MS) + 1], [1] * (KEPT + 1)],
)
def test_damaged_values_are_refused(data: Json) -> None:
    with pytest.raises(ValueError, match="past run times"):
        PastValues.from_json(data)
    row: list[Json] = ["workload", "w", 1, 0, 0, 0, 0, 1, 3, 0, data]
    with pytest.raises(ValueError, match="past run times"):
        RunTimes.from_json([["me", [row], []]])


# -- what a job is told ----------------------------------------------------------------------------


def told(mode: Estimates, *seconds: int) -> Cluster:
    """A master with earlier jobs, and one that is to be judged by them."""
    cluster = Cluster(settings=replace(SETTINGS, estimates=mode))
    ended(cluster, *seconds)
    cluster.submit(W, name="new", at=NEW)
    return cluster


@pytest.mark.parametrize("mode", [Estimates.POINT, Estimates.THREE_SIGMA])
def test_a_job_is_judged_by_the_values_alone(mode: Estimates) -> None:
    seconds = (600, 640, 900)
    found = estimate(told(mode, *seconds), "new-4")
    expected = 640.0 if mode is Estimates.POINT else useful_ms(list(seconds))
    assert found.source is Source.HISTORY
    assert found.mean_ms == pytest.approx(expected * 1_000, rel=1e-3)


def test_a_job_s_own_tasks_change_nothing_under_these_rules() -> None:
    cluster = told(Estimates.POINT, 600, 640, 900)
    cluster.start(JOB + "workload: w\nkind: array\ntasks: 5\n", name="array", at=NEW)
    before = estimate(cluster, "array-5")
    cluster.say("array-5/0", "exited", at=NEW + 90_000, exit_code=0)  # type: ignore[arg-type]
    assert estimate(cluster, "array-5") == before


def test_a_new_master_expects_the_same_by_the_values() -> None:
    for mode in (Estimates.POINT, Estimates.THREE_SIGMA):
        cluster = told(mode, 600, 640, 900)
        assert estimate(restarted(cluster), "new-4") == estimate(cluster, "new-4")


def test_the_feature_that_was_off_least_gives_the_values() -> None:
    times = RunTimes()
    for at in range(12):  # the hour says all, the workload nothing
        took = 60_000 if at % 2 else 6_000_000
        traits = replace(TRAITS, submitted_ms=Millis(at % 2 * 3_600_000))
        times = times.observe("me", traits, NONE_FINISHED.plus(took), Millis(at), KEPT)
    for hour, took in ((1, 60_000), (0, 6_000_000)):
        found = times.of("me").most_telling(replace(TRAITS, submitted_ms=Millis(hour * 3_600_000)))
        assert found is not None
        assert found[0] is times.of("me").spreads[JobFeature.HOUR, str(hour)]
        assert found[0].last.usual_ms(Estimates.POINT) == pytest.approx(took, rel=1e-4)
