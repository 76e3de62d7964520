"""The least total time of a fleet: by hand, against all schedules, and as it is published."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest

from eva_lab.experiments.fleet import ServersSection, nodes_of
from eva_lab.simulator.results.fleet_bound import fleet_bound
from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_master.model.resources import Resources
from eva_master.packing.lp.least_time import LeastTime, Need, least_time
from eva_wire.values.ids import MILLIS_PER_HOUR, Family
from tests.fakes.traces import published

FAST, SLOW = Family("fast"), Family("slow")
ONE_EACH = {FAST: 1, SLOW: 1}


def gpus(count: int) -> Resources:
    """So many GPUs, each with a vCPU."""
    return Resources(count, 1000 * count, 0)


def need(fast: float, slow: float, size: int = 1) -> Need:
    return Need(dict.fromkeys((FAST, SLOW), gpus(size)), {FAST: fast, SLOW: slow})


def found(needs: Sequence[Need], capacity: Mapping[Family, int]) -> LeastTime:
    least = least_time(needs, {family: gpus(count) for family, count in capacity.items()})
    assert least is not None
    return least


def test_work_that_gains_most_has_the_faster_type() -> None:
    # Two are four times as fast on the faster type, two are twice as fast. The first two take it
    # for 2; the others share what is left: 2 + x there, 2 * 4 / 2 - 2x here, hence x = 2/3.
    least = found([need(1, 4), need(1, 4), need(1, 2), need(1, 2)], ONE_EACH)
    assert least.bound_ms == pytest.approx(8 / 3)
    # Who uses both types pays for its work the same on either, and the prices sum to 1.
    assert least.cost(FAST, gpus(1)) == pytest.approx(2 / 3)
    assert least.cost(SLOW, gpus(1)) == pytest.approx(1 / 3)


def test_the_longest_work_may_decide_and_then_no_type_is_scarce() -> None:
    least = found([need(10, 30), need(1, 1)], {FAST: 2, SLOW: 1})
    assert least.bound_ms == pytest.approx(10)
    assert [least.cost(family, gpus(1)) for family in (FAST, SLOW)] == [0, 0]


def test_no_work_takes_no_time_and_work_without_a_type_has_no_bound() -> None:
    assert found([], ONE_EACH).bound_ms == 0
    other = Family("other")
    assert least_time([Need({other: gpus(1)}, {other: 1.0})], {FAST: gpus(1)}) is None


def test_a_price_is_what_a_gpu_less_costs() -> None:
    needs = [need(1, 2)] * 200 + [need(1, 5)] * 300
    full = found(needs, {FAST: 100, SLOW: 100})
    for family in (FAST, SLOW):
        less = found(needs, {FAST: 100, SLOW: 100} | {family: 99})
        lost = full.bound_ms  # of one GPU for all of the time
        rise = less.bound_ms - full.bound_ms
        assert rise == pytest.approx(full.cost(family, gpus(1)) * lost, rel=0.02)


def test_order_does_not_matter_and_half_the_speed_takes_twice_as_long() -> None:
    draw = random.Random(3)
    needs = [need(draw.uniform(1, 9), draw.uniform(1, 30), draw.choice((1, 2))) for _ in range(30)]
    slower = [
        need(2 * it.alone_ms[FAST], 2 * it.alone_ms[SLOW], it.demand[FAST].gpus) for it in needs
    ]
    least = found(needs, {FAST: 3, SLOW: 2}).bound_ms
    assert found(needs[::-1], {SLOW: 2, FAST: 3}).bound_ms == pytest.approx(least)
    assert found(slower, {FAST: 3, SLOW: 2}).bound_ms == pytest.approx(2 * least)
    assert found(needs, {FAST: 4, SLOW: 2}).bound_ms <= least


def shortest(steps: tuple[int, ...], rates: Sequence[tuple[int, int]], sizes: Sequence[int]) -> int:
    """The fewest rounds of all schedules, where a job is on one type for a whole round.

    Args:
        steps: That each job needs.
        rates: Steps of a round, on the faster type and on the slower one.
        sizes: GPUs of each job; there are two of each type.
    """
    states, rounds = {steps}, 0
    while not any(not any(left) for left in states):
        rounds += 1
        later = set()
        for left in states:
            for places in itertools.product((0, 1, None), repeat=len(left)):
                used = [
                    sum(g for g, p in zip(sizes, places, strict=True) if p == t) for t in (0, 1)
                ]
                if max(used) <= 2:
                    later.add(
                        tuple(
                            left[n] if at is None else max(0, left[n] - rates[n][at])
                            for n, at in enumerate(places)
                        )
                    )
        states = later
    return rounds


@pytest.mark.parametrize("seed", range(8))
def test_no_schedule_is_shorter(seed: int) -> None:
    draw = random.Random(seed)
    rates = [(draw.randint(2, 5), draw.randint(1, 3)) for _ in range(3)]
    steps = tuple(draw.randint(3, 9) for _ in range(3))
    sizes = [draw.choice((1, 2)) for _ in range(3)]
    needs = [
        need(left / fast, left / slow, size)
        for left, (fast, slow), size in zip(steps, rates, sizes, strict=True)
    ]
    bound = found(needs, {FAST: 2, SLOW: 2}).bound_ms
    rounds = shortest(steps, rates, sizes)
    # A round is whole in a schedule, and the last of each job may be used in part alone.
    assert bound <= rounds + 1e-9
    assert rounds - bound < 3


@pytest.mark.published
@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("work_0", 53.09),
        ("work_1", 56.63),
        ("work_2", 53.88),
        ("tail_0", 37.69),
        ("tail_1", 53.28),
        ("tail_2", 53.88),
    ],
)
def test_the_published_jobs_have_the_published_bounds(name: str, hours: float) -> None:
    file = published() / "hadar" / f"{name}.csv"
    trace = GpusRecipe(kind="gpus", file=file).trace(0, ())
    fleet = {kind: ServersSection(servers=5) for kind in ("v100", "p100", "k80")}
    least = fleet_bound(trace, nodes_of(fleet))
    assert least is not None
    assert least.bound_ms / MILLIS_PER_HOUR == pytest.approx(hours, abs=0.01)


def test_any_resource_may_be_the_scarce_one() -> None:
    # Two pieces take a GPU each and all of the CPUs: one after the other, though GPUs are idle.
    work = Need({FAST: Resources(1, 4000, 10)}, {FAST: 5.0}, count=2)
    least = least_time([work], {FAST: Resources(4, 4000, 100)})
    assert least is not None
    assert least.bound_ms == pytest.approx(10)
    assert least.price[FAST] == pytest.approx((0, 1 / 4000, 0, 0))
    # One piece that is as long as both is not faster than itself.
    long = Need({FAST: Resources(1, 1, 0)}, {FAST: 12.0})
    least = least_time([work, long], {FAST: Resources(4, 4000, 100)})
    assert least is not None
    assert least.bound_ms == pytest.approx(12)
