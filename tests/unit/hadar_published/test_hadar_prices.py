from __future__ import annotations

import math

import pytest

from eva_policies.hadar_published.prices import Extremes, PriceRange, curve, extremes, price_ranges
from eva_policies.hadar_published.requests import GpuRequest, Utility, weight, worth
from eva_wire.values.ids import Family

V100, K80 = Family("v100"), Family("k80")


def ask(name: str, tasks: int, size: float, v100: float, k80: float) -> GpuRequest:
    return GpuRequest(name, tasks, size, size, {V100: v100, K80: k80}, {V100: 1, K80: 1})


def test_a_price_goes_from_the_lowest_to_the_highest_by_equal_factors() -> None:
    prices = PriceRange(2.0, 162.0)
    assert curve(prices, 4) == pytest.approx([162.0, 54.0, 18.0, 6.0, 2.0])
    assert prices.at(1, 2) == pytest.approx(18.0)


def test_the_highest_price_is_the_most_utility_of_a_gpu_alone() -> None:
    """Equation (6): 2 GPUs at 10 iterations a second each earn 10 per GPU and second."""
    jobs = [ask("a", 2, 1000, 10, 5), ask("b", 4, 8000, 3, 2)]
    found = extremes(jobs, Utility.THROUGHPUT, 1000)
    assert found[V100].high == pytest.approx(10)
    assert found[K80] == found[V100]  # both can run on both types


def test_the_lowest_price_is_by_hand() -> None:
    """Equation (7): U(T) of `a` is 1000 / 1000, of `b` 8000 / 1000."""
    jobs = [ask("a", 2, 1000, 10, 5), ask("b", 4, 8000, 3, 2)]
    found = extremes(jobs, Utility.THROUGHPUT, 1000)
    # Slowest, `a` takes 100 s on 2 GPUs, `b` 1000 s on 4.
    assert found[V100].low == pytest.approx(min(1 / 200, 8 / 4000))
    assert found[V100].least_s == pytest.approx(200)
    prices = price_ranges(found, {V100: 8, K80: 2}, None)
    assert prices[V100].low == pytest.approx(8 / 4000 * (200 / 10) / 4)
    assert price_ranges(found, {V100: 8, K80: 2}, 5.0)[V100].low == pytest.approx(8 / 4000 / 20)


def test_types_on_which_nobody_runs_have_no_price() -> None:
    job = GpuRequest("a", 1, 10, 10, {V100: 1.0}, {V100: 1})
    found = extremes([job], Utility.THROUGHPUT, 1000)
    assert price_ranges(found, {V100: 4, K80: 4}, None).keys() == {V100}


def test_extremes_are_kept_whatever_has_ended() -> None:
    one, other = Extremes(3, 2, 50), Extremes(9, 4, 20)
    assert one.and_also(other) == other.and_also(one) == Extremes(9, 2, 20)


def test_prices_of_absurd_jobs_are_numbers() -> None:
    jobs = [ask("a", 64, 1e18, 1e12, 1e-6), ask("b", 1, 1, 1e-6, 1e12)]
    for utility in Utility:
        for prices in price_ranges(extremes(jobs, utility, 1.0), {V100: 1}, None).values():
            assert all(math.isfinite(it) and it > 0 for it in curve(prices, 4))


@pytest.mark.parametrize(
    ("utility", "expected"),
    [
        (Utility.THROUGHPUT, 1000.0),
        (Utility.PROMPTNESS, 1.0),
        (Utility.GPU_TIME, 100.0),
        (Utility.SLOWDOWN, 50.0),
    ],
)
def test_a_job_that_ends_later_is_worth_less(utility: Utility, expected: float) -> None:
    job = ask("a", 2, 1000, 10, 5)
    assert weight(job, utility) == pytest.approx(expected)
    assert worth(weight(job, utility), 100) == pytest.approx(expected / 100)
    assert worth(expected, 200) == pytest.approx(worth(expected, 100) / 2)


def test_the_end_of_a_job_counts_from_its_arrival() -> None:
    job = GpuRequest("a", 2, 1000, 400, {V100: 10.0}, {V100: 1}, waited_s=70)
    assert job.ends_s(10.0) == pytest.approx(90)
