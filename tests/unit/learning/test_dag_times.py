"""Run times of the stages of DAGs: what is learned of them, and what some tell of others."""

from __future__ import annotations

import random
from math import exp, log

import numpy as np
import pytest

from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times import dags
from eva_master.learning.run_times.dags import (
    DagTimes,
    EndedStage,
    Seen,
    StageTimes,
    conditioned,
    stage_keys,
)
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_wire.values.ids import MILLION, JobId

PPM = MILLION


def ppm(value: float) -> int:
    return round(value * PPM)


def ended(
    label: str = "etl", name: str = "load", seconds: float = 10, **more: object
) -> EndedStage:
    return EndedStage(label, name, log_ppm(round(1_000 * seconds)), round(1_000 * seconds), **more)  # type: ignore[arg-type]


def dag(times: DagTimes, owner: str = "ana", label: str = "etl", **seconds: float) -> DagTimes:
    """After a DAG whose stages have these names and run times."""
    stages = {
        JobId(f"{name}-{number}"): ended(label, name, it)
        for number, (name, it) in enumerate(seconds.items(), 1)
    }
    return times.over(owner, stages)


# -- conditioning ----------------------------------------------------------------------------------


def test_two_variables_are_conditioned_as_in_the_textbook() -> None:
    """Heights of 69 and 68 inches, deviations of 2 and 1, correlation 0.5: given 70, 68.25."""
    covariance = 0.5 * 2 * 1
    means, matrix = conditioned(
        [ppm(69), ppm(68)],
        [[ppm(4), ppm(covariance)], [ppm(covariance), ppm(1)]],
        {0: Seen(ppm(70))},
    )
    assert means == [ppm(70), ppm(68.25)]
    assert matrix == [[0, 0], [0, ppm(0.75)]]


@pytest.mark.parametrize("seed", range(5))
def test_any_number_is_conditioned_as_linear_algebra_has_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, known = 6, (4, 1, 3)
    root = rng.normal(size=(size, size))
    covariance, mean = root @ root.T + 0.1 * np.eye(size), rng.normal(10, 2, size)
    noise = np.array([0.0, 0.3, 0.05])
    value = rng.normal(10, 2, len(known))
    told = covariance[np.ix_(known, known)] + np.diag(noise)
    gain = covariance[:, known] @ np.linalg.inv(told)
    expected = mean + gain @ (value - mean[list(known)])
    left = covariance - gain @ covariance[known, :]
    seen = {
        place: Seen(ppm(it), ppm(off)) for place, it, off in zip(known, value, noise, strict=True)
    }
    means, matrix = conditioned(
        [ppm(it) for it in mean], [[ppm(it) for it in row] for row in covariance], seen
    )
    assert np.array(means) / PPM == pytest.approx(expected, abs=1e-3)
    assert np.array(matrix) / PPM == pytest.approx(left, abs=1e-3)


def test_the_order_in_which_stages_were_seen_does_not_matter() -> None:
    matrix = [[ppm(it) for it in row] for row in ((2, 0.5, 0.3), (0.5, 1, 0.2), (0.3, 0.2, 3))]
    seen = {0: Seen(ppm(3)), 1: Seen(ppm(2), ppm(0.1))}
    one = conditioned([0, 0, 0], matrix, seen)
    other = conditioned([0, 0, 0], matrix, dict(reversed(seen.items())))
    assert one[0] == pytest.approx(other[0], abs=10)
    assert one[1][2] == pytest.approx(other[1][2], abs=10)


# -- learning --------------------------------------------------------------------------------------


def test_means_and_covariances_are_those_of_the_dags() -> None:
    random_ = random.Random(1)
    rows = []
    times = StageTimes()
    for _ in range(25):
        common = random_.gauss(0, 0.8)
        rows.append([10 + common + random_.gauss(0, 0.3), 12 + common, 9 + random_.gauss(0, 1)])
        times = times.plus({name: ppm(it) for name, it in zip("abc", rows[-1], strict=True)})
    exact = np.cov(np.array(rows).T, bias=True)
    assert np.array(times.logs) / PPM == pytest.approx(np.mean(rows, axis=0), abs=1e-4)
    lower = [exact[at][before] for at in range(3) for before in range(at + 1)]
    assert np.array(times.covariances) / PPM == pytest.approx(lower, abs=1e-4)
    assert times.dags == (25, 25, 25)


def test_a_long_first_stage_makes_the_others_longer() -> None:
    times = StageTimes()
    for factor in (1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8):
        times = times.plus({"a": log_ppm(10_000 * factor), "b": log_ppm(60_000 * factor)})
    long, short = (times.given({"a": Seen(log_ppm(ms))})["b"] for ms in (80_000, 10_000))
    assert exp(long.log / PPM) == pytest.approx(480_000, rel=0.3)
    assert exp(short.log / PPM) == pytest.approx(60_000, rel=0.3)
    assert long.variance < times.given({})["b"].variance / 2


def test_who_saw_few_dags_says_little() -> None:
    times = StageTimes()
    for factor in (1, 8):
        assert not times.known("a")
        times = times.plus({"a": log_ppm(10_000 * factor), "b": log_ppm(60_000 * factor)})
    assert not times.known("a")
    few = times.given({"a": Seen(log_ppm(80_000))})["b"]
    assert exp(few.log / PPM) < 300_000, "half of what it would be if that were sure"
    times = times.plus({"a": log_ppm(10_000), "b": log_ppm(60_000)})
    assert times.known("a")
    assert not times.known("c")


def test_old_dags_fade() -> None:
    times = StageTimes()
    for ms in [1_000] * 200 + [100_000] * 100:
        times = times.plus({"a": log_ppm(ms)})
    assert exp(times.logs[0] / PPM) > 75_000


def test_stages_that_come_and_go() -> None:
    times = StageTimes()
    for number in range(12):
        seen = {"a": ppm(10 + number % 3), "b": ppm(5)}
        if number >= 6:
            seen["c"] = ppm(8 + number % 3)
        times = times.plus(seen)
    assert times.dags == (12, 12, 6)
    assert times.logs[2] == pytest.approx(ppm(9), abs=10)
    assert times.given({"a": Seen(ppm(12))})["c"].log > ppm(9.3)


def test_stages_are_known_by_their_names_and_numbered_where_these_are_the_same() -> None:
    names = {JobId("s2-9"): "s", JobId("load-8"): "load", JobId("s1-10"): "s"}
    assert stage_keys(names) == {"load-8": "load", "s2-9": "s", "s1-10": "s#2"}


# -- what is kept ----------------------------------------------------------------------------------


def test_a_dag_teaches_once_it_is_over_if_all_of_it_succeeded() -> None:
    times = DagTimes().ended("ana", JobId("a-1"), ended(name="a"))
    assert not times.of("ana").labels
    done = dict(times.of("ana").ended)
    broken = times.over("ana", {**done, JobId("b-2"): EndedStage("etl", "b", None, 5)})
    assert (broken.of("ana").labels, broken.of("ana").ended) == ({}, {})
    for more in ({"learns": False}, {}):
        after = times.over("ana", {**done, JobId("b-2"): ended(name="b")}, **more)
        assert not after.of("ana").ended
        assert bool(after.of("ana").labels) == (not more)
    assert after.of("ana").labels["etl"].stages == ("a", "b")
    assert after.of("bob").labels == {}, "nobody's DAGs say anything of those of others"


def test_a_flood_of_labels_stages_and_ends_costs_whoever_makes_it() -> None:
    times = dag(DagTimes(), "bob", "his", a=1, b=2).ended("bob", JobId("x-1"), ended())
    for number in range(dags.LABELS_PER_OWNER + 5):
        times = dag(times, "ana", f"label{number}", a=1)
    assert len(times.of("ana").labels) == dags.LABELS_PER_OWNER
    assert "label0" not in times.of("ana").labels
    for owner in range(dags.LABELS_KEPT // 32):
        for number in range(40):
            times = dag(times, f"u{owner}", f"label{number}", a=1)
    assert sum(len(it.labels) for it in times.owners.values()) == dags.LABELS_KEPT
    for owner in range(6):
        for number in range(dags.ENDED_PER_OWNER + 1):
            times = times.ended(f"u{owner}", JobId(f"j-{number}"), ended())
    assert len(times.of("u5").ended) <= dags.ENDED_PER_OWNER
    assert sum(len(it.ended) for it in times.owners.values()) == dags.ENDED_KEPT
    assert times.of("bob").labels["his"].dags == (1, 1)
    assert JobId("x-1") in times.of("bob").ended


def test_a_dag_of_ever_new_stages_forgets_those_that_it_lacks() -> None:
    times = StageTimes()
    for number in range(50):
        times = times.plus({"a": ppm(10), f"new{number}": ppm(9)})
        assert len(times.stages) <= dags.STAGES_KEPT
        assert f"new{number}" in times.stages
    assert times.dags[times.stages.index("a")] == 50
    wide = StageTimes().plus({f"s{number}": ppm(1) for number in range(100)})
    assert len(wide.plus({f"s{number}": ppm(1) for number in range(100)}).stages) == 16


def test_it_is_kept_in_the_journal_and_older_documents_are_read() -> None:
    times = DagTimes()
    for number in range(5):
        times = dag(times, load=10 + number, clean=20 + number, **{"a \u2028'\"": 5})
    stage = ended(expected_ms=7, after=(JobId("a-1"),))
    times = times.ended("ana", JobId("x-7"), stage)
    times = times.ended("bob", JobId("y-8"), EndedStage("l", "y", None, 0))
    document = Knowledge(dags=times).to_json()
    assert Knowledge.from_json(document).dags == times
    del document["dags"]
    assert Knowledge.from_json(document).dags == DagTimes()
    assert "dags" not in Knowledge().to_json(), "who has none writes none"


@pytest.mark.parametrize(
    "row",
    [
        7,
        ["ana", []],
        ["ana", [["etl", ["a"], [1], [5]]], []],
        ["ana", [["etl", ["a", "a"], [1, 1], [5, 5], [1, 1, 1]]], []],
        ["ana", [["etl", ["a"], [0], [5], [1]]], []],
        ["ana", [["etl", ["a"], [1], [5.5], [1]]], []],
        ["ana", [["etl", ["a"], [1], [-5], [1]]], []],
        ["ana", [["etl", [f"s{n}" for n in range(17)], [1] * 17, [1] * 17, [1] * 153]], []],
        ["ana", [], [["x-1", "etl", "x", 5, 7, 0]]],
        ["ana", [], [["x-1", "etl", "x", -5, 7, 0, []]]],
        ["ana", [], [["x-1", "etl", "x", 5, -7, 0, []]]],
        ["ana", [], [["x-1", "etl", "x", "5", 7, 0, []]]],
    ],
)
def test_what_is_damaged_is_refused(row: object) -> None:
    with pytest.raises(ValueError, match="not"):
        DagTimes.from_json([row])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="list"):
        DagTimes.from_json({"row": row})  # type: ignore[dict-item]


def test_the_mean_is_above_the_median_as_that_of_a_log_normal_run_time_is() -> None:
    times = StageTimes()
    for ms in (8_000, 10_000, 12_500) * 10:
        times = times.plus({"a": log_ppm(ms)})
    value = times.given({})["a"]
    assert value.log / PPM == pytest.approx(log(10_000), abs=1e-2)
    assert value.mean_ms == pytest.approx(10_000 * exp(value.variance / PPM / 2), rel=0.02)
