"""The work that a task has left, by whatever is known of it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.planning.estimate import LONGEST_MS
from eva_master.packing.valuation.remaining_work import (
    Extent,
    Left,
    left,
    standalone_rate_ppm,
    whole_ms,
)
from eva_wire.values.ids import MILLION

HOUR = 3_600_000
ALL = Extent(duration_ms=HOUR, total_steps=1_000, rate_ppm=MILLION, expected_ms=7 * HOUR)


@pytest.mark.parametrize(
    ("extent", "whole"),
    [
        (ALL, (HOUR, False)),
        (Extent(total_steps=1_000, rate_ppm=MILLION, expected_ms=HOUR), (1_000_000, False)),
        (Extent(total_steps=1_000, expected_ms=HOUR), (HOUR, True)),
        (Extent(rate_ppm=MILLION, expected_ms=HOUR), (HOUR, True)),
        (Extent(total_steps=1_000), None),
        (Extent(), None),
        (Extent(total_steps=10**15, rate_ppm=1), (LONGEST_MS, False)),
    ],
)
def test_what_is_stated_goes_before_steps_and_steps_before_what_others_took(
    extent: Extent, whole: tuple[int, bool] | None
) -> None:
    assert whole_ms(extent) == whole


def test_steps_say_more_than_running_time() -> None:
    assert left(ALL, steps=250, ran_ms=HOUR) == Left(HOUR * 3 // 4, by_steps=True, estimated=False)
    assert left(ALL, steps=0, ran_ms=HOUR // 4) == Left(HOUR * 3 // 4, False, False)


count = st.integers(0, 2**63)


@given(
    st.builds(Extent, st.none() | count, st.none() | count, count, st.none() | count), count, count
)
def test_what_is_left_is_never_out_of_bounds(extent: Extent, steps: int, ran_ms: int) -> None:
    found = left(extent, steps, ran_ms)
    assert found is None or 0 <= found.ms <= LONGEST_MS
    more = left(extent, steps + 1, ran_ms + 1) if steps else None
    assert more is None or found is None or more.ms <= found.ms


@pytest.mark.parametrize(
    ("known", "own", "company", "rate"),
    [
        (300 * MILLION, 0.0, None, 300 * MILLION),  # not measured yet
        (300 * MILLION, 5.0, None, 150 * MILLION),  # alone, at a thirtieth of the speed
        (300 * MILLION, 5.0, 500_000, 300 * MILLION),  # company may be why it is slow
        (0, 5.0, 500_000, 300 * MILLION),
        (0, 0.0, None, 0),
        (0, float("nan"), None, 0),
        (0, float("inf"), None, 0),
        (0, 1e300, None, 10**15),
        (7, -1.0, None, 7),
    ],
)
def test_a_task_is_measured_itself_where_nobody_else_can_be_why(
    known: int, own: float, company: int | None, rate: int
) -> None:
    assert standalone_rate_ppm(known, own, Fraction(1, 30), company) == rate
