"""What a job is worth by when it is done, against values worked out by hand."""

from __future__ import annotations

import pytest

from eva_master.model.accounting.worth import Decay, Worth

HOUR = 3_600_000
DOLLAR = 1_000_000


def test_linear_worth_falls_by_the_hour_and_ends_at_zero() -> None:
    worth = Worth(500 * DOLLAR, loses_per_hour=2 * DOLLAR)
    assert worth.after(0) == 500 * DOLLAR
    assert worth.after(90 * 60_000) == 497 * DOLLAR
    assert worth.after(250 * HOUR) == worth.after(1000 * HOUR) == 0
    assert worth.loss_per_hour(HOUR) == 2 * DOLLAR
    assert worth.loss_per_hour(300 * HOUR) == 0


def test_halving_worth_is_a_half_and_a_quarter_after_one_and_two_spans() -> None:
    worth = Worth(300 * DOLLAR, Decay.HALVING, span_ms=6 * HOUR)
    assert worth.after(0) == 300 * DOLLAR
    assert worth.after(6 * HOUR) == pytest.approx(150 * DOLLAR, rel=1e-5)
    assert worth.after(12 * HOUR) == pytest.approx(75 * DOLLAR, rel=1e-5)
    lost = worth.after(0) - worth.after(36_000)
    assert worth.loss_per_hour(0) == pytest.approx(100 * lost, rel=1e-3)


def test_power_worth_falls_as_the_convex_function_of_the_paper() -> None:
    worth = Worth(DOLLAR, Decay.POWER, span_ms=100 * HOUR, exponent_ppm=2_000_000)
    assert worth.after(100 * HOUR) == pytest.approx(DOLLAR, rel=1e-5)
    assert worth.after(10 * HOUR) == pytest.approx(100 * DOLLAR, rel=1e-5)
    assert worth.after(HOUR) == worth.after(0) == pytest.approx(10_000 * DOLLAR, rel=1e-5)
    assert worth.loss_per_hour(0) == 0
    lost = worth.after(10 * HOUR) - worth.after(10 * HOUR + 36_000)
    assert worth.loss_per_hour(10 * HOUR) == pytest.approx(100 * lost, rel=1e-2)
