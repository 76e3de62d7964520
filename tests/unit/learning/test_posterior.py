"""What is believed of a job's run time, against the densities themselves, summed over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammainccinv, ndtr

from eva_master.learning.run_times.posterior import NONE_FINISHED, Belief, Finished, Prior
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimate, Source
from eva_wire.values.ids import MILLION

MINUTE = 60_000
_STEPS = 250


def finished(*took_ms: int) -> Finished:
    found = NONE_FINISHED
    for took in took_ms:
        found = found.plus(took)
    return found


class Grid:
    """The same by brute force: every mean and variance, weighted by prior times likelihood."""

    def __init__(self, belief: Belief, took_ms: Sequence[int]) -> None:
        shape, scale = belief.freedom / 2, belief.deviation / MILLION / 2
        # The variance at even steps of its own cumulative prior, finer at both of its ends.
        inner = (np.arange(_STEPS) + 0.5) / _STEPS
        share = np.concatenate([inner / _STEPS, inner[1:-1], 1 - inner / _STEPS])
        width = np.full(len(share), 1 / _STEPS)
        width[:_STEPS] = width[-_STEPS:] = 1 / _STEPS**2
        variance = scale / gammainccinv(shape, share)  # Inverse gamma.
        steps = np.linspace(-12, 12, 3 * _STEPS)
        centre, deviation = belief.log / MILLION, np.sqrt(variance / (belief.weight / MILLION))
        self.mean = centre + steps[:, None] * deviation[None, :]
        weight = np.exp(-(steps[:, None] ** 2) / 2) * width[None, :]
        for took in took_ms:
            away = (log(took) - self.mean) ** 2 / variance[None, :]
            weight = weight * np.exp(-away / 2) / np.sqrt(variance)[None, :]
        self.weight = weight / weight.sum()
        self.deviation = np.sqrt(variance)[None, :]

    def log(self) -> float:
        return float((self.weight * self.mean).sum())

    def exceeds(self, time_ms: int) -> float:
        return float((self.weight * ndtr((self.mean - log(time_ms)) / self.deviation)).sum())


@pytest.mark.parametrize(
    ("belief", "took_ms"),
    [
        (Belief(log_ppm(MINUTE), MILLION, 8, 8 * 62_500), ()),
        (Belief(log_ppm(MINUTE), MILLION, 8, 8 * 62_500), (90_000,)),
        (Belief(log_ppm(MINUTE), 3 * MILLION, 9, 9 * 40_000), (50_000, 80_000)),
        (Belief(log_ppm(MINUTE), 400_000, 8, 8 * 90_000), (70_000, 71_000, 100_000)),
        (
            Belief(log_ppm(30 * MINUTE), 60_000, 6, 6 * 250_000),
            (MINUTE, 2 * MINUTE, 40_000, 65_000),
        ),
    ],
)
def test_the_belief_is_what_the_densities_add_up_to(
    belief: Belief, took_ms: tuple[int, ...]
) -> None:
    grid, own = Grid(belief, took_ms), finished(*took_ms)
    after = belief.updated(own)
    assert after.log / MILLION == pytest.approx(grid.log(), abs=0.003)
    estimate = after.estimate(Source.POSTERIOR, own)
    for time_ms in (20_000, 45_000, 60_000, 85_000, 150_000, 600_000):
        told = estimate.exceeds_ppm(time_ms) / MILLION
        assert told == pytest.approx(grid.exceeds(time_ms), abs=0.004)


times = st.lists(st.integers(1, LONGEST_MS), min_size=1, max_size=12)
priors = st.builds(
    Prior,
    st.integers(0, 26 * MILLION),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(0, 10**6),
)


@given(priors, times)
def test_nothing_is_out_of_bounds_whatever_happened(prior: Prior, took: list[int]) -> None:
    own = finished(*took)
    estimate = prior.after(own).estimate(Source.POSTERIOR, own)
    assert 1 <= estimate.least_ms <= estimate.most_ms <= LONGEST_MS
    assert 1 <= estimate.mean_ms <= LONGEST_MS
    probabilities = [estimate.exceeds_ppm(at) for at in (0, 1, 1_000, MINUTE, 10**9, LONGEST_MS)]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 <= probabilities[-1] <= probabilities[0] == MILLION
    low, high = sorted((prior.log, own.log))
    assert low - 1 <= estimate.log <= high + 1


@given(priors, st.lists(st.integers(1, LONGEST_MS), min_size=1, max_size=4))
def test_the_order_of_tasks_is_no_matter(prior: Prior, took: list[int]) -> None:
    assert len({prior.after(finished(*order)) for order in permutations(took)}) == 1


def test_tasks_that_are_unlike_earlier_jobs_count_for_more() -> None:
    sure = Prior(log_ppm(MINUTE), 10_000, 10_000, 64)
    as_expected, unlike = finished(62_000), finished(1_000 * MINUTE)
    assert sure.after(as_expected).log == pytest.approx(log_ppm(61_000), abs=2_000)
    assert sure.after(unlike).log > log_ppm(900 * MINUTE)
    spread = sure.after(unlike).estimate(Source.POSTERIOR, unlike).spread_ppm
    assert spread > sure.after(as_expected).estimate(Source.POSTERIOR, as_expected).spread_ppm


def test_the_plain_mean_counts_more_with_each_task() -> None:
    prior = Prior(log_ppm(MINUTE), MILLION, 62_500, 4)
    took = [10_000] * 9 + [1_000_000]
    own = finished(*took)
    assert prior.after(own).estimate(Source.POSTERIOR, own).mean_ms == sum(took) // 10
    few = finished(10_000, 100_000)
    belief = prior.after(few)
    assert belief.estimate(Source.POSTERIOR, few).mean_ms > exp(belief.log / MILLION)


def test_a_stated_run_time_leaves_no_doubt() -> None:
    stated = Estimate.stated(MINUTE)
    assert (stated.mean_ms, stated.least_ms, stated.most_ms) == (MINUTE, MINUTE, MINUTE)
    assert [stated.exceeds_ppm(at) for at in (MINUTE - 1, MINUTE)] == [MILLION, 0]
