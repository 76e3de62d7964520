"""Logarithms and tail probabilities in integers, against floating point."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr

from eva_master.model.arithmetic.fixed_point import MOST_LOG_PPM, exceeds_ppm, exp_of_ppm, log_ppm
from eva_wire.values.ids import MILLION


@given(st.integers(1, 10**18))
def test_a_logarithm_is_right_to_the_last_digit(value: int) -> None:
    assert abs(log_ppm(value) - log(value) * MILLION) <= 0.51


@given(st.integers(1, 10**17), st.integers(0, 10**17))
def test_of_more_the_logarithm_is_no_less(value: int, more: int) -> None:
    assert log_ppm(value) <= log_ppm(value + more)


@given(st.integers(-(10**9), 35 * MILLION))
def test_an_exponential_is_right(value: int) -> None:
    wanted = exp(value / MILLION)
    assert abs(exp_of_ppm(value) - wanted) <= 0.51 + wanted * 1e-12


@given(st.integers(0, 10**30))
def test_no_exponential_is_out_of_bounds(value: int) -> None:
    assert exp_of_ppm(value) <= exp_of_ppm(MOST_LOG_PPM) < 10**18


@given(st.integers(1, 10**12))
def test_there_and_back(value: int) -> None:
    assert exp_of_ppm(log_ppm(value)) == pytest.approx(value, rel=1e-6, abs=0.51)


@given(st.integers(-30 * MILLION, 30 * MILLION), st.integers(1, 10**9), st.integers(1, 200))
def test_the_tail_is_that_of_students_distribution(distance: int, scale: int, freedom: int) -> None:
    wanted = stdtr(freedom, -distance / MILLION / sqrt(scale / MILLION))
    assert abs(exceeds_ppm(distance, scale, freedom) - wanted * MILLION) <= 1


def test_without_spread_there_is_no_doubt() -> None:
    assert [exceeds_ppm(distance, 0, 5) for distance in (-1, 0, 1)] == [MILLION, 0, 0]
