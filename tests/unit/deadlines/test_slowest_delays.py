"""What few delays exceed, beside what is expected of them."""

from __future__ import annotations

from random import Random

import pytest

from eva_master.learning.delays import Delay, DelayTable
from eva_wire.values.ids import Millis

SECOND = 1_000


def measured(*seconds: float) -> DelayTable:
    known = DelayTable()
    for number, took in enumerate(seconds):
        known = known.observe(Delay.SETUP, "type", round(took * SECOND), Millis(number))
    return known


def slowest_s(known: DelayTable, default_s: int = 7) -> float:
    found = known.slowest(Delay.SETUP, "type", hint=None, default=default_s * SECOND)
    return found / SECOND


def test_before_anything_is_measured_it_is_what_is_assumed() -> None:
    assert slowest_s(DelayTable()) == 7
    assert DelayTable().slowest(Delay.SETUP, "type", hint=5_000, default=7_000) == 5_000


def test_a_slow_one_stays_in_mind_for_hundreds() -> None:
    once = measured(*[100] * 20, 180, *[100] * 10)
    assert slowest_s(once) == pytest.approx(178, abs=3)
    later = measured(*[100] * 20, 180, *[100] * 1_500)
    assert slowest_s(later) < 105
    assert once.lookup(Delay.SETUP, "type", hint=None, default=0) < 105_000


def test_one_that_hung_is_no_measure_for_others() -> None:
    assert slowest_s(measured(*[100] * 20, 90_000, *[100] * 3)) == 300


def test_few_of_what_comes_exceed_it() -> None:
    draw = Random(3)
    known, exceeded = measured(100), 0
    for number in range(3_000):
        took = round(SECOND * 100 * draw.lognormvariate(0, 0.2))
        exceeded += took > known.slowest(Delay.SETUP, "type", hint=None, default=0)
        known = known.observe(Delay.SETUP, "type", took, Millis(number + 1))
    assert exceeded / 3_000 < 0.02


def test_it_is_on_record_and_earlier_records_have_none() -> None:
    known = measured(100, 180, 100)
    assert DelayTable.from_json(known.to_json()) == known
    (row,) = known.to_json()  # type: ignore[misc]
    assert isinstance(row, list)
    before = DelayTable.from_json([row[:3]])
    assert before.known == known.known
    assert slowest_s(before) == before.lookup(Delay.SETUP, "type", hint=None, default=0) / SECOND
