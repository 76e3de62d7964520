"""Estimates, windows, delays and all that was learned as one value."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.learning.bounds import bounded
from eva_master.learning.colocation import key, recorded
from eva_master.learning.delays import Delay, DelayTable, two_digits
from eva_master.learning.estimate import MeasuredEstimate, taken
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import OTHERS
from eva_master.learning.windows import pace
from eva_wire.values.ids import Family, Millis, Workload

A, B, C = Workload("a"), Workload("b"), Workload("c")
NOW = Millis(5)


def estimate(*samples: int, slack: int = 0) -> MeasuredEstimate:
    known: MeasuredEstimate | None = None
    for at, sample in enumerate(samples):
        known = taken(known, sample, Millis(at), slack)
    assert known is not None
    return known


def test_the_first_measurements_are_averaged() -> None:
    assert estimate(100, 120, 140) == MeasuredEstimate(120, Millis(2), 3)


def test_an_estimate_follows_a_changed_world() -> None:
    assert estimate(*[100] * 1000, *[150] * 30).value == pytest.approx(150, abs=4)


def test_a_measurement_far_off_is_doubted() -> None:
    assert estimate(100, 100, 1000).value == 100
    assert estimate(100, 100, 10).value == 100
    assert estimate(100, 100, 1000, 102).doubted == ()
    assert estimate(100, 100, 1000, 1000, 102, 1000, 1000).value < 102


def test_three_doubted_in_a_row_are_believed() -> None:
    assert estimate(100, 100, 100, 900, 1000, 5000) == MeasuredEstimate(1000, Millis(5), 3)


def test_small_differences_are_never_doubted() -> None:
    assert estimate(0, 900, slack=1000).value == 450
    assert estimate(0, 1001, slack=1000).value == 0


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=40))
def test_an_estimate_lies_among_its_measurements(samples: list[int]) -> None:
    known = estimate(*samples)
    assert min(samples) <= known.value <= max(samples)
    assert MeasuredEstimate.from_json(known.to_json()) == known


# -- windows


def marks(*stretches: tuple[int, int]) -> list[tuple[int, int]]:
    found = [(1_000, 7)]
    for elapsed, steps in stretches:
        found.append((found[-1][0] + elapsed, found[-1][1] + steps))
    return found


def test_the_pace_is_steps_over_time() -> None:
    assert pace(marks((1_000, 10), (1_000, 12), (2_000, 18))) == 10
    assert pace(marks((200_000, 1))) == 0.005


def test_a_checkpoint_s_pause_is_left_out() -> None:
    steady = [(1_000, 10)] * 9
    assert pace(marks(*steady, (9_000, 10), (5_000, 10))) == 10


def test_what_is_slow_throughout_is_no_pause() -> None:
    assert pace(marks(*[(1_000, 10)] * 3, *[(2_500, 10)] * 3)) == pytest.approx(60 / 10.5)


def test_slow_steps_that_reports_cut_in_two_are_no_pause() -> None:
    assert pace(marks(*[(500, 2)] * 10, (1_000, 1))) == pytest.approx(21 / 6)


def test_of_few_stretches_all_count() -> None:
    assert pace(marks(*[(1_000, 10)] * 3, (27_000, 10))) == pytest.approx(40 / 30)


def test_no_time_and_no_steps_teach_nothing() -> None:
    assert pace(marks()) is None
    assert pace(marks((0, 5))) is None
    assert pace(marks((5_000, 0))) is None


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 2**53)), max_size=30))
def test_a_pace_is_positive_and_finite(stretches: list[tuple[int, int]]) -> None:
    found = pace(marks(*stretches))
    assert found is None or (found > 0 and math.isfinite(found))


# -- delays


def test_measured_thrice_beats_a_hint_beats_the_default() -> None:
    delays = DelayTable()
    assert delays.lookup(Delay.START, A, hint=None, default=47_000) == 47_000
    assert delays.lookup(Delay.START, A, hint=9_000, default=47_000) == 9_000
    for measured, (hinted, unhinted) in enumerate(
        ((9_000, 20_000), (9_000, 20_000), (20_000,) * 2)
    ):
        delays = delays.observe(Delay.START, A, 20_400, Millis(measured))
        assert delays.lookup(Delay.START, A, hint=9_000, default=47_000) == hinted
        assert delays.lookup(Delay.START, A, hint=None, default=47_000) == unhinted
    assert delays.lookup(Delay.CHECKPOINT, A, hint=None, default=8_000) == 8_000
    assert delays.lookup(Delay.START, B, hint=None, default=8_000) == 8_000


def test_a_look_up_changes_only_with_what_it_relies_on() -> None:
    once = DelayTable().observe(Delay.SETUP, "c7i.large", 30_000, NOW)
    twice = once.observe(Delay.SETUP, "c7i.large", 30_400, NOW)
    assert once.relied_on(Delay.SETUP, "c7i.large") == twice.relied_on(Delay.SETUP, "c7i.large")
    thrice = twice.observe(Delay.SETUP, "c7i.large", 30_000, NOW)
    assert twice.relied_on(Delay.SETUP, "c7i.large") != thrice.relied_on(Delay.SETUP, "c7i.large")
    assert DelayTable().relied_on(Delay.SETUP, "c7i.large") is None


def test_delays_have_two_digits() -> None:
    assert [two_digits(it) for it in (0, 7, 99, 104, 20_400, 20_500, 99_600)] == [
        *(0, 7, 99, 100, 20_000, 21_000, 100_000)
    ]


# -- all of it


def lessons() -> Lessons:
    learned = Lessons().in_company([key(A, [B])], 800_000, NOW)
    learned = learned.in_company([key(B, [A, C])], 600_000, NOW)
    standalone = learned.standalone.observe(A, Family("p3"), 2.5, NOW)
    delays = learned.delays.observe(Delay.CHECKPOINT, A, 8_100, NOW)
    return replace(learned, standalone=standalone, delays=delays)


def knowledge() -> Knowledge:
    return Knowledge(
        {"ana": lessons()}, DelayTable().observe(Delay.SETUP, "p3.2xlarge", 9_000, NOW)
    )


def test_windows_in_company_make_an_estimate() -> None:
    learned = Lessons()
    for at, observed in enumerate((800_000, 700_000, 750_000, 50_000)):
        learned = learned.in_company([key(A, [B])], observed, Millis(at))
    assert recorded(learned.throughput, key(A, [B])) == 750_000
    assert learned.evidence[key(A, [B])] == MeasuredEstimate(750_000, Millis(2), 3, (50_000,))


def test_noise_is_no_news_to_the_policies() -> None:
    learned = Lessons().in_company([key(A, [B])], 800_000, NOW)
    again = learned.in_company([key(A, [B])], 839_000, NOW)
    assert again.throughput is learned.throughput
    assert again.evidence[key(A, [B])].value == 819_500
    more = again.in_company([key(A, [B])], 839_000, NOW)
    assert recorded(more.throughput, key(A, [B])) == 826_000


def test_a_gang_s_lower_bound_is_raised_as_it_is() -> None:
    members = [key(A, [C]), key(B, [C])]
    learned = Lessons().in_company(members, 500_000, NOW).in_company(members, 900_000, NOW)
    assert recorded(learned.throughput, key(A, [C])) == 900_000
    assert learned.evidence[key(A, [C])] == MeasuredEstimate(900_000, NOW, 2)


def test_what_was_learned_survives_the_journal() -> None:
    assert Knowledge.from_json(knowledge().to_json()) == knowledge()


def test_the_journal_of_the_first_version_is_read() -> None:
    learned = Knowledge.from_json(
        {"throughput": [["a", ["b"], 800_000]], "standalone": [["a", "p3", 2_500_000]]}
    ).of(OTHERS)
    assert recorded(learned.throughput, key(A, [B])) == 800_000
    assert learned.evidence[key(A, [B])].samples == 1
    assert learned.standalone.lookup(A, Family("p3")) == 2.5


def test_the_journal_of_the_second_version_is_read() -> None:
    rows = [["a", "p3", [2_501_000, 7, 3, []]]]
    data = {**lessons().to_json(), "version": 2, "standalone": rows}
    learned = Knowledge.from_json(data).of(OTHERS)
    assert learned.standalone.rates[A, Family("p3")] == MeasuredEstimate(2_501_000, Millis(7), 3)
    assert learned.standalone.known.measured == (((A, Family("p3")), 2_500_000),)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("version", 5, "of version 5"),
        ("voices", {}, "is a list"),
        ("voices", [["ana"]], "not what a voice taught"),
        ("voices", [["ana", {"colocation": {}}]], "is a list"),
        ("voices", [["ana", {"colocation": [["a", ["b"]]]}]], "not an entry"),
        ("voices", [["ana", {"standalone": [[1, 2, 3]]}]], "not an entry"),
        ("voices", [["ana", {"standalone": [["a", "p3", ["?"]]]}]], "not an estimate"),
        ("delays", [["start", "a"]], "not a learned delay"),
        ("delays", None, "are a list"),
    ],
)
def test_damaged_knowledge_is_told(field: str, value: object, words: str) -> None:
    data = {**knowledge().to_json(), field: value}
    with pytest.raises(ValueError, match=words):
        Knowledge.from_json(data)


def test_what_is_remembered_is_bounded() -> None:
    entries = {name: MeasuredEstimate(1, Millis(at)) for at, name in enumerate("dbca")}
    assert set(bounded(entries, 3)) == set("bca")
    assert bounded(entries, 4) is entries


def test_a_forgotten_pair_is_forgotten_by_the_policies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_master.learning.voices.lessons.ENTRIES_KEPT", 1)
    learned = Lessons().in_company([key(A, [B])], 800_000, Millis(1))
    learned = learned.in_company([key(B, [A])], 700_000, Millis(2))
    assert [entry for entry, _ in learned.throughput.observed] == [key(B, [A])]
    assert set(learned.evidence) == {key(B, [A])}


def test_what_was_measured_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_master.learning.voices.lessons.ENTRIES_KEPT", 2)
    learned = Lessons().in_company([key(A, [B])], 800_000, Millis(1))
    learned = learned.in_company([key(B, [A])], 700_000, Millis(2))
    learned = learned.in_company([key(A, [B])], 800_000, Millis(3))
    for known in (learned, Lessons.from_json(learned.to_json())):
        after = known.in_company([key(A, [C])], 900_000, Millis(4))
        assert set(after.evidence) == {key(A, [B]), key(A, [C])}
        assert [entry for entry, _ in after.throughput.observed] == [key(A, [B]), key(A, [C])]


def test_of_measurements_of_one_time_the_lower_key_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eva_master.learning.voices.lessons.ENTRIES_KEPT", 2)
    learned = Lessons()
    for entry in (key(B, [A]), key(A, [B]), key(C, [A])):
        learned = learned.in_company([entry], 800_000, Millis(1))
    assert set(learned.evidence) == {key(B, [A]), key(C, [A])}
