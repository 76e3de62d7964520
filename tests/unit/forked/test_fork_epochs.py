"""Single epochs of forked jobs: who leads, what counts, and when a job goes on unforked."""

from __future__ import annotations

import math

import pytest

from eva_master.control.features.forks import tracker
from eva_master.control.features.forks.tracker import Done, Runner
from eva_master.model.forks.explanations import explain_forks, left_out
from eva_master.model.forks.merging import NOT_BEGUN, GivenWeights, MergeRule, Merging, PartFate
from eva_wire.values.ids import Millis

NOW = Millis(1_000)
RULE = MergeRule(check="loss", tolerance_ppm=20_000)
SLOW, FAST, ODD = Runner(0, 1, 1.0), Runner(1, 1, 5.0), Runner(2, 4, 2.0)
ALL = (SLOW, FAST, ODD)


def _epoch(now: Merging = NOT_BEGUN, left: int = 800) -> Merging:
    """One in which all have given ten steps."""
    now = tracker.opened(now, left, ALL, NOW)
    for runner in ALL:
        now = tracker.gave(now, now.epoch, GivenWeights(runner.fork, runner.attempt, 10))
    return tracker.led(now, ALL, NOW)


def _closed(now: Merging, merged: float | None, best: float | None, *kept: int) -> Merging:
    assert now.leader is not None
    parts = tuple(PartFate(it.fork, it.fork in (kept or (0, 1, 2)), "NaN") for it in now.parts)
    done = Done(now.epoch, now.leader, now.leader_attempt, parts, merged, best)
    return tracker.merged(now, done, RULE, Millis(NOW + 500))


def test_the_steps_that_are_left_are_split_by_speed() -> None:
    now = tracker.opened(NOT_BEGUN, 800, ALL, NOW)
    assert [(it.fork, it.attempt, it.steps) for it in now.shares] == [
        (0, 1, 100),
        (1, 1, 500),
        (2, 4, 200),
    ]
    # The last steps are those of the fastest.
    assert [it.fork for it in tracker.opened(NOT_BEGUN, 1, ALL, NOW).shares] == [1]


def test_the_fastest_that_gave_leads_and_another_if_it_dies() -> None:
    now = _epoch()
    assert now.leader == 1
    assert tracker.instructions(now, 1, 1, 800).average
    assert not tracker.instructions(now, 2, 4, 800).average
    now = tracker.led(tracker.without(now, {(0, 1), (2, 4)}), (SLOW, ODD), NOW)
    assert (now.leader, now.leader_attempt) == (2, 4)
    # If all who gave are gone, whoever runs has the parts from the store.
    later = Runner(0, 2, 1.0)
    now = tracker.led(tracker.without(now, {(0, 2)}), (later,), NOW)
    assert (now.leader, now.leader_attempt) == (0, 2)
    assert tracker.instructions(now, 0, 2, 800).parts == now.parts


def test_what_a_leader_leaves_out_does_not_count_and_is_told() -> None:
    now = _closed(_epoch(), None, None, 0, 1)
    assert (now.merged, now.steps, now.took_ms) == (1, 20, 500)
    assert now.left_out == ((2, "NaN"),)
    lines = explain_forks(3, 800, now, lambda fork: f"a-1/0+{fork}")
    assert lines == (
        "up to 3 forks: one merge, 20 of 800 steps in them; the last one took 0.5 s",
        "a-1/0+2 was left out of the last merge: NaN",
    )
    assert left_out(now, 2) == "its last part was left out: NaN"
    assert not left_out(now, 1)


def test_more_steps_than_a_share_do_not_count() -> None:
    now = tracker.opened(NOT_BEGUN, 800, ALL, NOW)
    now = tracker.gave(now, 1, GivenWeights(0, 1, 101))
    assert not now.parts
    why = ((0, "it claims 101 steps where it was to do 100 at most"),)
    assert now.refused == why
    for runner in (FAST, ODD):
        now = tracker.gave(now, 1, GivenWeights(runner.fork, runner.attempt, 10))
    now = _closed(tracker.led(now, ALL, NOW), None, None)
    assert (now.steps, now.left_out) == (20, why)
    assert _closed(_epoch(now), None, None).left_out == ()  # of the last merge alone


@pytest.mark.parametrize(
    ("figures", "guarded"),
    [
        ([(1.03, 1.0), (1.03, 1.0)], True),
        ([(1.01, 1.0), (1.03, 1.0)], False),  # within what is tolerated
        ([(1.03, 1.0), (0.9, 1.0), (1.03, 1.0)], False),  # not in a row
        ([(math.nan, 1.0), (math.nan, 1.0)], True),
        ([(None, None), (None, 1.0)], False),
    ],
)
def test_merges_that_do_harm_twice_in_a_row_end_the_forking(
    figures: list[tuple[float | None, float | None]], guarded: bool
) -> None:
    now = NOT_BEGUN
    for merged, best in figures:
        now = _closed(_epoch(now), merged, best)
    assert bool(now.unforked) is guarded
    assert now.steps == 30 * len(figures)
    if guarded:
        assert now.unforked == "merging has made loss worse twice in a row"
        order = tracker.instructions(now, 0, 1, 800)
        assert (order.quota, order.forks, order.best, order.whole) == (740, 1, True, True)
        assert tracker.instructions(now, 1, 1, 800).finished
        assert not tracker.opened(now, 740, ALL, NOW).open


def test_who_comes_in_the_middle_waits() -> None:
    now = tracker.opened(NOT_BEGUN, 800, (SLOW, FAST), NOW)
    order = tracker.instructions(now, 2, 4, 800)
    assert (order.quota, order.give, order.average, order.finished) == (0, False, False, False)
    assert order.forks >= 2  # with one it would train alone


def test_a_leader_that_does_not_merge_gives_way_and_ends_the_forking_in_the_end() -> None:
    now = tracker.led(tracker.deposed(_epoch()), ALL, NOW)
    assert now.leader == 2
    assert [it.fork for it in now.parts] == [0, 2]
    now = tracker.deposed(_epoch(_closed(now, None, None)))
    assert now.unforked == "fork 1 was to merge 2 times and did not"


def test_only_the_end_of_all_steps_is_the_end_of_the_job() -> None:
    now = tracker.opened(NOT_BEGUN, 800, (SLOW, FAST), NOW)
    assert tracker.may_succeed(now, 0, 1, 800)  # as a program says that has no forks
    assert not tracker.may_succeed(now, 1, 1, 800)
    alone = tracker.opened(NOT_BEGUN, 800, (FAST,), NOW)
    assert tracker.may_succeed(alone, 1, 1, 800)
    assert not tracker.may_succeed(alone, 1, 2, 800)
    assert tracker.may_succeed(Merging(merged=1, steps=30), 2, 4, 30)


def test_who_is_left_alone_in_an_epoch_does_not_end_the_job_with_its_share() -> None:
    now = tracker.struck(tracker.opened(NOT_BEGUN, 600, (SLOW, FAST), NOW), 1)
    order = tracker.instructions(now, 0, 1, 600)
    assert (order.quota, order.forks) == (100, 2)  # with one it would end after these
    alone = tracker.opened(NOT_BEGUN, 600, (SLOW,), NOW)
    assert (
        tracker.instructions(alone, 0, 1, 600).quota,
        tracker.instructions(alone, 0, 1, 600).forks,
    ) == (600, 1)


def test_a_job_whose_parts_never_count_goes_on_unforked() -> None:
    once = _closed(_epoch(), None, None, 99)  # Nobody is kept.
    assert (once.steps, once.unforked) == (0, "")
    twice = _closed(_epoch(once), None, None, 99)
    assert "no part of it counted in 2 rounds in a row" in twice.unforked
    assert not _closed(_epoch(_closed(_epoch(once), None, None)), None, None, 99).unforked


def test_a_fork_that_claims_too_much_again_and_again_ends_the_forking() -> None:
    now = NOT_BEGUN
    for unforked in (False, True):
        now = tracker.opened(now, 800, ALL, NOW)
        now = tracker.gave(now, now.epoch, GivenWeights(0, 1, 10**9))
        assert bool(now.unforked) is unforked
        now = tracker.gave(now, now.epoch, GivenWeights(1, 1, 10))
        now = tracker.led(tracker.struck(now, 2), ALL, NOW)
        if not unforked:
            now = _closed(now, None, None)


def test_rounds_in_which_nobody_makes_a_step_end_the_forking() -> None:
    now = NOT_BEGUN
    for unforked in (False, True):
        now = tracker.opened(now, 800, ALL, NOW)
        for runner in ALL:
            assert not now.unforked
            now = tracker.gave(now, 1, GivenWeights(runner.fork, runner.attempt, 0))
        assert bool(now.unforked) is unforked
    assert now.unforked == "no fork made a step in 2 rounds in a row"
    lines = explain_forks(3, 800, now, lambda fork: f"a-1/0+{fork}")
    assert lines[-1] == "goes on unforked: no fork made a step in 2 rounds in a row"


def test_one_fork_without_a_step_is_left_out_and_told_why() -> None:
    now = tracker.opened(NOT_BEGUN, 800, ALL, NOW)
    for runner, steps in ((SLOW, 0), (FAST, 10), (ODD, 10)):
        now = tracker.gave(now, 1, GivenWeights(runner.fork, runner.attempt, steps))
    now = _closed(tracker.led(now, ALL, NOW), None, None)
    assert (now.steps, now.idle, now.left_out) == (20, 0, ((0, "it holds no step"),))


def test_who_is_cut_off_is_struck_without_blame_and_its_part_stays() -> None:
    now = tracker.without(tracker.opened(NOT_BEGUN, 800, ALL, NOW), {(0, 1), (2, 4)})
    assert [it.fork for it in now.shares] == [0, 2]
    led = _epoch()
    now = tracker.without(led, {(0, 1), (1, 2), (2, 4)})  # a later attempt is another one
    assert (now.leader, now.parts, now.missed) == (None, led.parts, ())


def test_forks_are_told_which_merge_counts() -> None:
    now = _epoch()
    assert tracker.instructions(now, 0, 1, 800).merge == ""
    parts = tuple(PartFate(it.fork, kept=True) for it in now.parts)
    for leader, merged in ((2, 0), (1, 1)):
        done = Done(1, leader, 1, parts, digest=f"of {leader}")
        now = tracker.merged(now, done, RULE, NOW)
        assert now.merged == merged
    assert tracker.instructions(now, 0, 1, 800).merge == "of 1"


def test_a_fork_waits_for_longer_than_a_leader_may_take() -> None:
    for every_ms in (1_000, 60_000, 3_600_000):
        rule = MergeRule(every_ms)
        # From its part on: until the others are asked, have given, one has failed, one has merged.
        assert rule.patience_ms >= every_ms + rule.give_ms + rule.lead_ms + rule.lead_ms
