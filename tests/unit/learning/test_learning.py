"""Co-location table, straggler attribution, standalone throughput, event rates."""

from __future__ import annotations

import math

import pytest

from eva_master.learning.attribution import attribute
from eva_master.learning.bounds import bounded
from eva_master.learning.colocation import (
    key,
    lookup,
    observe,
    table_from_json,
)
from eva_master.learning.rates import EventRates, horizon_ms
from eva_master.learning.standalone import StandaloneTable
from eva_master.model.planning.snapshot import ThroughputTable
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Family, Millis, Workload
from tests.fakes.snapshots import table

A, B, C = Workload("a"), Workload("b"), Workload("c")
EMPTY = ThroughputTable()
HOUR = MILLIS_PER_HOUR


def test_a_task_alone_runs_at_full_speed_whatever_was_learned():
    assert lookup(table({("a", ("b",)): 0.5}), key(A, [])) == MILLION


def test_pairs_never_seen_count_the_default():
    assert lookup(EMPTY, key(A, [B])) == 950_000
    assert lookup(EMPTY, key(A, [B, C]), 900_000) == 810_000


def test_what_was_recorded_beats_the_product_of_pairs():
    learned = table({("a", ("b",)): 0.5, ("a", ("c",)): 0.8})
    assert lookup(learned, key(A, [C, B])) == 400_000
    assert lookup(observe(learned, key(A, [C, B]), 600_000), key(A, [B, C])) == 600_000


def test_observations_replace_are_sorted_and_stay_in_range():
    learned = observe(
        observe(observe(EMPTY, key(B, [A]), 2 * MILLION), key(A, [B]), 0), key(B, [A]), 7
    )
    assert learned.observed == (((A, (B,)), 1), ((B, (A,)), 7))
    assert observe(learned, key(A, []), 5) is learned
    assert observe(learned, key(B, [A]), 7) is learned


def test_the_table_s_first_form_is_read():
    learned = table({("a", ("b", "b")): 0.5, ("b", ("a",)): 0.25})
    assert table_from_json([["b", ["a"], 250_000], ["a", ["b", "b"], 500_000]]) == learned
    with pytest.raises(ValueError, match="not an entry"):
        table_from_json([["a", "b", 1]])
    with pytest.raises(ValueError, match="list"):
        table_from_json({})


# Members of a job: A beside one task, B beside two, C on an instance of its own.
ONE, TWO, NONE = key(A, [C]), key(B, [A, C]), key(C, [])


def test_the_only_task_of_a_job_is_slowed_by_its_neighbours():
    assert attribute(EMPTY, [ONE], 700_000) == (ONE, 700_000)
    assert attribute(observe(EMPTY, ONE, 900_000), [ONE], 700_000) == (ONE, 700_000)


def test_nobody_shares_nothing_is_learned():
    assert attribute(EMPTY, [NONE, NONE], 700_000) is None


def test_none_recorded_updates_the_task_with_the_most_neighbours():
    assert attribute(EMPTY, [ONE, TWO, NONE], 800_000) == (TWO, 800_000)


def test_a_lower_recorded_entry_is_raised():
    learned = observe(observe(EMPTY, ONE, 600_000), TWO, 700_000)
    assert attribute(learned, [ONE, TWO], 800_000) == (ONE, 800_000)


def test_a_lower_recorded_entry_is_raised_even_if_others_are_unrecorded():
    assert attribute(observe(EMPTY, ONE, 600_000), [ONE, TWO], 800_000) == (ONE, 800_000)


def test_all_recorded_higher_blames_the_unrecorded_task_with_the_most_neighbours():
    learned = observe(EMPTY, TWO, 900_000)
    three = key(C, [A, A])
    assert attribute(learned, [ONE, TWO, three, NONE], 800_000) == (three, 800_000)


def test_all_recorded_and_all_higher_lowers_the_lowest_half_the_way():
    learned = observe(observe(EMPTY, ONE, 900_000), TWO, 950_000)
    assert attribute(learned, [ONE, TWO], 800_000) == (ONE, 850_000)


def test_an_entry_that_explains_the_observation_stays():
    learned = observe(observe(EMPTY, ONE, 800_000), TWO, 950_000)
    assert attribute(learned, [ONE, TWO], 800_000) is None


def test_equal_candidates_are_told_apart_by_their_keys():
    first, second = key(A, [B]), key(B, [A])
    assert attribute(EMPTY, [second, first], 500_000) == (first, 500_000)


def test_standalone_throughput_is_kept_per_workload_and_family():
    at = Millis(7)
    learned = StandaloneTable().observe(A, Family("p3"), 2.0, at).observe(A, Family("c7i"), 1.0, at)
    assert learned.lookup(A, Family("p3")) == 2.0
    assert learned.lookup(B, Family("p3")) is None
    assert learned.observe(A, Family("p3"), 3.0, at).lookup(A, Family("p3")) == 2.5
    assert learned.observe(A, Family("p3"), 0.0, at) is learned
    assert StandaloneTable.from_json(learned.to_json()) == learned
    with pytest.raises(ValueError, match="not an entry"):
        StandaloneTable.from_json([[1, 2, 3]])


def test_policies_know_a_rate_to_three_digits_until_it_is_off_by_a_twentieth():
    table = StandaloneTable().observe(A, Family("p3"), 104.26, Millis(0))
    assert table.known.measured == (((A, Family("p3")), 104_000_000),)
    for at, rate in enumerate((100.0, 108.0, 100.5, 107.0), start=1):
        after = table.observe(A, Family("p3"), rate, Millis(at))
        assert after.known is table.known, "noise is no news"
        table = after
    for at in range(20):
        table = table.observe(A, Family("p3"), 115.0, Millis(at + 10))
    ((_, told),) = table.known.measured
    assert told == pytest.approx(112_000_000, rel=0.03)
    assert StandaloneTable.from_json(table.to_json()) == table, "what they know, too"


def test_a_workload_that_reports_nothing_is_known_by_that_until_it_does():
    table = StandaloneTable().silent(A, Family("p3"), Millis(1))
    assert table.known.measured == (((A, Family("p3")), 0),)
    assert table.lookup(A, Family("p3")) is None
    assert table.silent(A, Family("p3"), Millis(2)) is table
    heard = table.observe(A, Family("p3"), 4.0, Millis(3))
    assert heard.lookup(A, Family("p3")) == 4.0
    assert heard.known.measured == (((A, Family("p3")), 4_000_000),)
    assert heard.silent(A, Family("p3"), Millis(4)) is heard


def test_of_rates_that_are_forgotten_the_policies_know_nothing(monkeypatch):
    monkeypatch.setattr("eva_master.learning.standalone.bounded", lambda it: bounded(it, 1))
    table = StandaloneTable().observe(B, Family("p3"), 2.0, Millis(1))
    table = table.observe(A, Family("p3"), 4.0, Millis(2))
    assert table.known.measured == (((A, Family("p3")), 4_000_000),)
    assert set(table.rates) == {(A, Family("p3"))}


def rates(**values: float) -> EventRates:
    return EventRates(first_ms=Millis(0), at_ms=Millis(10 * HOUR), **values)


def test_events_of_one_half_life_ago_count_half():
    first = EventRates(Millis(0), Millis(0)).counted(4, full=True)
    later = first.aged(Millis(HOUR), HOUR)
    assert (later.events, later.full, later.full_share) == (2.0, 0.5, 0.25)
    assert later.exposure_ms == pytest.approx(HOUR / math.log(2) / 2)


def test_ageing_in_steps_is_ageing_at_once():
    first = EventRates(Millis(0), Millis(0)).counted(4, full=True)
    at_once, steps = first.aged(Millis(HOUR), 5 * HOUR), first
    for minute in range(1, 61):
        steps = steps.aged(Millis(minute * 60_000), 5 * HOUR)
    assert steps.events == pytest.approx(at_once.events)
    assert steps.exposure_ms == pytest.approx(at_once.exposure_ms)
    assert first.aged(Millis(-5), HOUR) == first


def test_the_rate_follows_a_changing_load():
    seen = EventRates(Millis(0), Millis(0))
    for hour in range(1, 49):
        seen = seen.aged(Millis(hour * HOUR), 2 * HOUR).counted(10 if hour <= 24 else 1, full=False)
    assert 1 <= seen.rate_per_hour(0) < 1.5


def test_the_horizon_is_the_paper_s_formula():
    # λ = 2/h, p = 1/4: -1 / (2 ln 0.75) = 1.738 h
    seen = rates(events=20.0, full=5.0, exposure_ms=10.0 * HOUR)
    assert horizon_ms(seen, 0) == round(-HOUR / (2 * math.log(0.75)))


def test_the_horizon_before_any_full_reconfiguration_is_the_time_elapsed():
    seen = rates(events=20.0, exposure_ms=10.0 * HOUR)
    assert horizon_ms(seen, HOUR) == 10 * HOUR
    assert horizon_ms(seen, 11 * HOUR) == 11 * HOUR
    assert horizon_ms(EventRates(Millis(0), Millis(0)), HOUR) == HOUR


def test_the_horizon_is_zero_where_every_event_leads_to_a_full_reconfiguration():
    assert horizon_ms(rates(events=5.0, full=5.0, exposure_ms=1.0), HOUR) == 0


def test_the_horizon_shrinks_as_full_reconfigurations_become_likelier():
    shares = [0.001, 0.01, 0.1, 0.5, 0.9, 0.999]
    horizons = [
        horizon_ms(rates(events=10.0, full=10 * share, exposure_ms=1.0 * HOUR), HOUR)
        for share in shares
    ]
    assert horizons == sorted(horizons, reverse=True)


def test_the_horizon_stays_finite():
    seen = rates(events=1.0, full=1e-12, exposure_ms=10.0 * HOUR)
    assert horizon_ms(seen, 0) == 365 * 24 * HOUR


def test_a_burst_into_a_new_cluster_is_not_its_usual_load():
    seen = EventRates(Millis(0), Millis(0)).counted(6, full=False)
    assert seen.rate_per_hour(HOUR // 2) == 12


def test_rates_survive_the_journal():
    seen = rates(events=1.5, full=0.25, exposure_ms=7.0)
    assert EventRates.from_json(seen.to_json()) == seen
    with pytest.raises(ValueError, match="not event rates"):
        EventRates.from_json({"events": 1})
