"""The table by which jobs with deadlines choose between spot instances, others and waiting."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.packing.deadlines.choice import Chooser, Situation
from eva_master.packing.deadlines.table import CLASSES, MarketChoice, SpotForecast, table

MINUTE, HOUR = 60_000, 3_600_000
choose = Chooser().choose
STEP, CHANGE = 12 * MINUTE, 2
YOUNG_GO = (2.0, 1.5, 1.0, 0.6, 0.3, 0.2, 0.1, 0.05)
EVEN = SpotForecast(400_000, YOUNG_GO, YOUNG_GO, 300_000)


def chain(outlook: SpotForecast, pools: int, draw: random.Random) -> tuple[int, bool]:
    """Where the pools are a step later, and whether the one in use has run dry.

    Written down from the sentence that defines it, not from the code: within a step something ends
    at its rate; what lasts is a class older with the chance that a step has of being its last.
    """
    hours = STEP / HOUR
    bounds = (0, 0.25, 0.5, 1, 2, 4, 8, 16)
    there, number = pools < CLASSES, pools % CLASSES
    rate = (outlook.loss if there else outlook.back)[number]
    if draw.random() < 1 - np.exp(-rate * hours):
        if not there:
            return 0, False
        return (2 if draw.random() < outlook.other_ppm / 1e6 else CLASSES), True
    if number + 1 < CLASSES:
        width = bounds[number + 1] - bounds[number]
        if draw.random() < min(1.0, hours / width):
            return pools + 1, False
    return pools, False


def lived(
    outlook: SpotForecast, choices: list[np.ndarray], work: int, slack: int, seed: int
) -> float:
    """What one job pays that does as the table says."""
    draw, pools, place, cost = random.Random(seed), CLASSES, MarketChoice.WAIT, 0.0
    while work > 0:
        if slack <= 0:
            return cost + (work + (0 if place is MarketChoice.ON_DEMAND else CHANGE)) * STEP / HOUR
        found = MarketChoice(int(choices[work + slack][work, pools, place]))
        changes = found is not place and found is not MarketChoice.WAIT
        steps = CHANGE if changes else 1
        price = {
            MarketChoice.SPOT: outlook.price_ppm / 1e6,
            MarketChoice.ON_DEMAND: 1.0,
            MarketChoice.WAIT: 0.0,
        }
        if changes and found is MarketChoice.ON_DEMAND and slack < CHANGE:
            return cost + (work + CHANGE) * STEP / HOUR
        lost = False
        for _ in range(steps):
            pools, dry = chain(outlook, pools, draw)
            lost = lost or dry
        cost += price[found] * steps * STEP / HOUR
        if changes or found is MarketChoice.WAIT:
            slack -= steps
        else:
            work -= 1
        place = MarketChoice.WAIT if found is MarketChoice.SPOT and lost else found
    return cost


def test_its_costs_are_what_jobs_pay_that_follow_it() -> None:
    made = list(table(EVEN, STEP, CHANGE, 80))
    choices = [found for _, found in made]
    for work, slack in ((30, 4), (30, 30)):
        paid = [lived(EVEN, choices, work, slack, seed) for seed in range(3_000)]
        expected = made[work + slack][0][work, CLASSES, MarketChoice.WAIT]
        spread = float(np.std(paid)) / len(paid) ** 0.5
        assert np.mean(paid) == pytest.approx(expected, abs=4 * spread)


@pytest.mark.parametrize("other_ppm", [0, 600_000])
def test_more_time_and_lower_prices_are_never_dearer(other_ppm: int) -> None:
    outlook = replace(EVEN, other_ppm=other_ppm)
    costs = [cost for cost, _ in table(outlook, STEP, CHANGE, 70)]
    cheaper = [cost for cost, _ in table(replace(outlook, price_ppm=350_000), STEP, CHANGE, 70)]
    for work in (1, 7, 30):
        # Who has it may leave it unused: the steps after the first at which that makes no sense
        # are those of waiting.
        for left in range(work + 1, 70):
            waits = costs[left][work, :, MarketChoice.WAIT]
            assert np.all(waits <= costs[left - 1][work, :, MarketChoice.WAIT].max() + 1e-9)
        assert np.all(cheaper[60][work] <= costs[60][work] + 1e-9)


def test_without_time_to_lose_it_is_on_demand() -> None:
    costs, choices = list(table(EVEN, STEP, CHANGE, 10))[10]
    assert np.all(choices[10] == MarketChoice.ON_DEMAND)
    assert costs[10, 0, MarketChoice.ON_DEMAND] == pytest.approx(2.0)
    assert costs[10, 0, MarketChoice.SPOT] == pytest.approx(2.4)


def situation(**changes: object) -> Situation:
    """A job of a day that waits."""
    base = Situation(24 * HOUR, 12 * HOUR, 6 * MINUTE, MarketChoice.WAIT, there=True, age_ms=0)
    return replace(base, **changes)  # type: ignore[arg-type]


def test_pools_that_stay_are_used_and_such_that_flicker_are_not() -> None:
    never, ever = (0.0001,) * CLASSES, (20.0,) * CLASSES
    stays = SpotForecast(300_000, never, never)
    assert choose(SpotChoice.LEARNED, stays, situation()) is MarketChoice.SPOT
    flickers = SpotForecast(300_000, ever, never)
    assert choose(SpotChoice.LEARNED, flickers, situation()) is not MarketChoice.SPOT
    soon = SpotForecast(300_000, never, ever)
    assert choose(SpotChoice.LEARNED, soon, situation(there=False)) is MarketChoice.WAIT
    dear = SpotForecast(1_200_000, never, ever)
    assert choose(SpotChoice.LEARNED, dear, situation()) is not MarketChoice.SPOT


@pytest.mark.parametrize("rule", list(SpotChoice))
@pytest.mark.parametrize("place", list(MarketChoice))
@pytest.mark.parametrize("there", [True, False])
def test_no_rule_takes_time_that_is_not_there(
    rule: SpotChoice, place: MarketChoice, there: bool
) -> None:
    if place is MarketChoice.SPOT and not there:
        return
    here = situation(place=place, there=there)
    assert choose(rule, EVEN, replace(here, slack_ms=0)) is MarketChoice.ON_DEMAND
    assert choose(rule, EVEN, replace(here, slack_ms=-HOUR)) is MarketChoice.ON_DEMAND
    if place is not MarketChoice.SPOT:
        short = replace(here, slack_ms=5 * MINUTE)
        assert choose(rule, EVEN, short) is not MarketChoice.SPOT, "a change takes longer"
    if not there:
        assert choose(rule, EVEN, here) is not MarketChoice.SPOT


def test_uniform_progress_catches_up_on_demand_and_stays_until_it_is_ahead() -> None:
    uniform = SpotChoice.UNIFORM_PROGRESS
    away = situation(there=False)
    assert choose(uniform, EVEN, replace(away, ahead_ms=1)) is MarketChoice.WAIT
    assert choose(uniform, EVEN, replace(away, ahead_ms=-1)) is MarketChoice.ON_DEMAND
    here = situation(place=MarketChoice.ON_DEMAND, ahead_ms=11 * MINUTE)
    assert choose(uniform, EVEN, here) is MarketChoice.ON_DEMAND
    assert choose(uniform, EVEN, replace(here, ahead_ms=12 * MINUTE)) is MarketChoice.SPOT


def test_until_the_safety_net_nobody_comes_back() -> None:
    net = SpotChoice.UNTIL_SAFETY_NET
    assert choose(net, EVEN, situation(place=MarketChoice.ON_DEMAND)) is MarketChoice.ON_DEMAND
    assert choose(net, EVEN, situation(there=False)) is MarketChoice.WAIT
    assert choose(net, EVEN, situation()) is MarketChoice.SPOT
