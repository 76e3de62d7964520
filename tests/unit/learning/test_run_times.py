"""What is learned of run times from jobs that have ended, per owner and feature."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times.posterior import NONE_FINISHED, Finished, Prior
from eva_master.learning.runtimes import (
    CONTRADICTIONS,
    OWNERS_KEPT,
    VALUES_KEPT,
    VALUES_PER_OWNER,
    WORKLOADS_DOUBTED,
    JobFeature,
    RunTimes,
    Spread,
    Traits,
)
from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.planning.plan import Json
from eva_master.model.resources import Resources
from eva_wire.values.ids import MILLION, Millis, Workload

MINUTE = 60_000
HOUR = 3_600_000
W = Workload("w")
SMALL, LARGE = Resources(0, 1_000, 2_048), Resources(1, 8_000, 65_536)


def finished(*took_ms: int) -> Finished:
    found = NONE_FINISHED
    for took in took_ms:
        found = found.plus(took)
    return found


def traits(
    workload: str = "w", name: str = "job", hour: int = 0, size: Resources = SMALL
) -> Traits:
    return Traits(workload, name, Millis(hour * HOUR), size)


def seen(*took_ms: int, of: Traits | None = None, owner: str = "me") -> RunTimes:
    times = RunTimes()
    for at, took in enumerate(took_ms):
        times = times.observe(owner, of or traits(), finished(took), Millis(at))
    return times


def prior(times: RunTimes, of: Traits | None = None, owner: str = "me") -> Prior:
    found = times.of(owner).prior(of or traits())
    assert found is not None
    return found


def spread(times: RunTimes, feature: JobFeature, value: str, owner: str = "me") -> Spread:
    return times.of(owner).spreads[feature, value]


def test_what_jobs_have_in_common() -> None:
    values = dict(Traits("w", "train-2026-11-22", Millis(25 * HOUR), LARGE).values())
    assert values == {
        JobFeature.WORKLOAD: "w",
        JobFeature.NAME: "train",
        JobFeature.OWNER: "",
        JobFeature.HOUR: "1",
        JobFeature.GPUS: "1",
        JobFeature.CPUS: "8000",
        JobFeature.MEMORY: "65536",
    }
    assert dict(traits(name="2026").values())[JobFeature.NAME] == "2026"


def test_with_less_than_three_tasks_nobody_knows() -> None:
    assert seen(MINUTE, MINUTE).of("me").prior(traits()) is None
    assert exp_of_ppm(prior(seen(MINUTE, MINUTE, MINUTE)).log) == pytest.approx(MINUTE, rel=1e-5)
    array = RunTimes().observe("me", traits(), finished(*[MINUTE] * 3), Millis(0))
    assert exp_of_ppm(prior(array).log) == pytest.approx(MINUTE, rel=1e-5)


def test_jobs_of_others_say_nothing() -> None:
    times = seen(MINUTE, MINUTE, MINUTE)
    assert times.of("you").prior(traits()) is None
    more = times.observe("you", traits(), finished(HOUR), Millis(9))
    assert more.of("me") is times.of("me")


def test_a_job_counts_for_one_however_many_tasks_it_has() -> None:
    many = RunTimes().observe("me", traits(), finished(*[MINUTE] * 500), Millis(0))
    both = many.observe("me", traits(), finished(4 * MINUTE), Millis(1))
    assert exp_of_ppm(spread(both, JobFeature.WORKLOAD, "w").log) == pytest.approx(
        2 * MINUTE, rel=0.01
    )


def test_old_jobs_fade() -> None:
    times = seen(*[MINUTE] * 100, *[4 * MINUTE] * 40)
    assert exp_of_ppm(spread(times, JobFeature.WORKLOAD, "w").log) > 3 * MINUTE


def test_the_feature_that_predicted_best_counts_most() -> None:
    times = RunTimes()
    for at in range(12):  # the hour says all, the workload nothing
        took = MINUTE if at % 2 else 100 * MINUTE
        times = times.observe("me", traits(hour=at % 2), finished(took), Millis(at))
    assert exp_of_ppm(prior(times, traits(hour=1)).log) == pytest.approx(MINUTE, rel=0.15)
    assert exp_of_ppm(prior(times, traits(hour=0)).log) == pytest.approx(100 * MINUTE, rel=0.15)
    unseen = prior(times, traits(hour=5))
    assert MINUTE < exp_of_ppm(unseen.log) < 100 * MINUTE
    assert unseen.between > 10 * prior(times, traits(hour=1)).between


def test_more_jobs_that_are_alike_make_it_surer() -> None:
    between = [prior(seen(*[MINUTE, MINUTE + 1_000] * count)).between for count in (2, 5, 20)]
    assert between == sorted(between, reverse=True)
    assert between[-1] < between[0] / 3


def test_how_alike_the_tasks_of_one_job_are_is_learned() -> None:
    same = RunTimes().observe("me", traits(), finished(*[MINUTE] * 60), Millis(0))
    unlike = RunTimes().observe("me", traits(), finished(*[MINUTE, 9 * MINUTE] * 30), Millis(0))
    assert prior(same).within < 10_000
    assert prior(unlike).within == pytest.approx(MILLION * 1.2, rel=0.1)


def test_a_flood_of_names_is_at_the_cost_of_its_owner_alone() -> None:
    times = seen(*[MINUTE] * 5, owner="quiet")
    for at in range(VALUES_PER_OWNER):
        flood = traits(workload=f"w-{at}", name=f"x{at}x")
        times = times.observe("loud", flood, finished(HOUR), Millis(at))
    assert len(times.of("loud").spreads) == VALUES_PER_OWNER
    assert times.of("quiet") == seen(*[MINUTE] * 5, owner="quiet").of("quiet")
    assert (JobFeature.WORKLOAD, f"w-{VALUES_PER_OWNER - 1}") in times.of("loud").spreads
    assert (JobFeature.WORKLOAD, "w-0") not in times.of("loud").spreads
    assert (JobFeature.OWNER, "") in times.of("loud").spreads  # used by each


def test_all_owners_together_are_bounded_at_the_cost_of_the_largest() -> None:
    times = seen(*[MINUTE] * 5, owner="quiet")
    owners = 2 * VALUES_KEPT // VALUES_PER_OWNER
    for at in range(VALUES_PER_OWNER // 2):
        for owner in range(owners):
            one = traits(workload=f"w-{at}", name=f"x{at}x")
            times = times.observe(f"loud-{owner}", one, finished(HOUR), Millis(at))
    assert sum(len(it.spreads) for it in times.owners.values()) <= VALUES_KEPT
    assert len(times.of("quiet").spreads) == 7


def test_no_more_owners_are_known_than_may_be() -> None:
    times = RunTimes()
    for number in range(OWNERS_KEPT + 5):
        times = times.record(f"user-{number}", W, HOUR, MINUTE)
    assert len(times.owners) == OWNERS_KEPT
    assert "user-4" not in times.owners


# -- what is stated ------------------------------------------------------------------------------


def told(*took_ms: int, stated_ms: int = HOUR) -> tuple[int, ...]:
    times = RunTimes()
    for took in took_ms:
        times = times.record("me", W, stated_ms, took)
    return times.of("me").disbelieved(W, stated_ms)


def test_what_is_stated_is_believed_until_three_tasks_in_a_row_contradict_it() -> None:
    off = 29 * MINUTE
    assert told(*[off] * (CONTRADICTIONS - 1)) == ()
    assert told(off, off, off) == (off, off, off)
    assert told(off, off, 31 * MINUTE, off) == ()  # one agreed in between
    assert told(off, off, off, HOUR) == ()
    assert told(off, off, off, 3 * HOUR) == (off, off, 3 * HOUR)


def test_a_few_seconds_contradict_nothing() -> None:
    assert told(4_000, 4_000, 4_000, stated_ms=1_000) == ()


def test_a_corrected_duration_is_believed_at_once() -> None:
    times = RunTimes()
    for _ in range(5):
        times = times.record("me", W, HOUR, 5 * MINUTE)
    known = times.of("me")
    assert known.disbelieved(W, HOUR)
    assert not known.disbelieved(W, 6 * MINUTE)
    assert not times.of("you").disbelieved(W, HOUR)
    assert not known.disbelieved(Workload("other"), HOUR)


def test_doubts_are_bounded() -> None:
    times = RunTimes()
    for number in range(WORKLOADS_DOUBTED + 3):
        times = times.record("me", Workload(f"w{number}"), HOUR, MINUTE)
    assert len(times.of("me").doubted) == WORKLOADS_DOUBTED


# -- the journal ---------------------------------------------------------------------------------


def test_what_was_learned_survives_the_journal() -> None:
    times = seen(MINUTE, HOUR, 5 * MINUTE).record("me", W, HOUR, MINUTE)
    times = times.observe("you", traits(size=LARGE), finished(1, 2, 3), Millis(7))
    written = json.loads(json.dumps(Knowledge(run_times=times).to_json()))
    read = Knowledge.from_json(written).run_times
    assert read == times
    assert [list(it.spreads) for it in read.owners.values()] == [
        list(it.spreads) for it in times.owners.values()
    ]


def test_what_an_earlier_release_wrote_is_passed_over() -> None:
    written = Knowledge().to_json()
    del written["runtimes"]
    written["run_times"] = [["w", [600_000, 640_000, 700_000], 5]]
    assert Knowledge.from_json(written).run_times == RunTimes()


@pytest.mark.parametrize(
    "data",
    [
        {"me": []},
        [["me", []]],
        [["me", [["workload", "w", 1]], []]],
        [["me", [["colour", "red", 1, 0, 0, 0, 0, 1, 1, 0]], []]],
        [["me", [["workload", "w", 1, -1, 0, 0, 0, 1, 1, 0]], []]],
        [["me", [["workload", "w", 1, 0, 0, 0, 0, 0, 1, 0]], []]],
        [["me", [["workload", "w", True, 0, 0, 0, 0, 1, 1, 0]], []]],
        [["me", [], [["w", [0]]]]],
        [["me", [], [["w", "x"]]]],
    ],
)
def test_damaged_data_is_refused(data: Json) -> None:
    with pytest.raises(ValueError, match=r"."):
        RunTimes.from_json(data)


def test_a_spread_forgets_what_it_was_unsure_of() -> None:
    first = Spread.of(finished(MINUTE), Millis(0))
    assert (first.log, first.jobs, first.error) == (log_ppm(MINUTE), 1, 0)
    second = first.plus(finished(2 * MINUTE), Millis(5))
    assert second.error == pytest.approx(0.6931**2 * MILLION, rel=0.001)
    assert replace(second, at_ms=Millis(0)).variance(0) < second.variance(10 * MILLION)
