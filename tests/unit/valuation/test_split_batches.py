"""Gangs that divide batches by the speed of their members: shares, pace and worth."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.learning.speeds.batch_shares import at_share, batch_shares
from eva_master.model.job import JobSpec, Training
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation.gang_pace import parts
from eva_master.packing.valuation.job_valuation import JobValuation, divided
from eva_master.packing.valuation.reservation_price import cheapest_first, rates, reservation
from eva_master.testing.job_views import changed
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family
from tests.fakes.snapshots import Cluster, offer, task
from tests.unit.packing.test_packing_speeds import paced

FAST = offer("fast.1", (1, 4, 8), 3.0, family="fast")
MID = offer("mid.1", (1, 4, 8), 1.0, family="mid")
SLOW = offer("slow.1", (1, 4, 8), 0.3, family="slow")
CATALOG = cheapest_first([FAST, MID, SLOW])
EVERYWHERE = task(fast=(1, 1, 1), mid=(1, 1, 1), slow=(1, 1, 1))


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=40))
def test_shares_are_a_million_and_in_proportion(speeds):
    found = batch_shares(speeds)
    assert sum(found) == MILLION
    assert min(found) >= 1
    known = [speed for speed in speeds if speed]
    usual = Fraction(sum(known), len(known)) if known else Fraction(1)
    total = sum(speed or usual for speed in speeds)
    for speed, share in zip(speeds, found, strict=True):
        assert abs(Fraction(share, MILLION) - (speed or usual) / total) <= Fraction(
            len(speeds) + 1, MILLION
        )


def test_members_that_are_alike_do_equal_parts():
    assert batch_shares([7, 7, 7, 7]) == (250_000,) * 4
    assert batch_shares([0, 0]) == (500_000,) * 2
    assert batch_shares([4, 1, 0]) == (533_333, 133_334, 333_333)


@given(st.lists(st.integers(1_000, 10**6), min_size=2, max_size=12))
def test_with_its_share_every_member_keeps_up_with_the_mean(speeds):
    shares = batch_shares(speeds)
    mean = Fraction(sum(speeds), len(speeds))
    for speed, share in zip(speeds, shares, strict=True):
        pace = at_share(Fraction(speed), share, len(speeds))
        assert abs(pace - mean) <= mean / 50
    assert at_share(Fraction(3), 0, 7) == 3, "equal parts: the member's own speed"


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
        min_size=2,
        max_size=3,
    )
)
def test_an_iteration_costs_as_little_as_any_choice_of_instances_makes_it(speeds):
    tasks = [paced(EVERYWHERE, fast=f, mid=m, slow=s) for f, m, s in speeds]
    members = [(it.demand, rates(it)) for it in tasks]
    cheapest = min(
        Fraction(
            sum(it.price for it in chosen),
            sum(
                dict(known)[it.type.family] for it, (_, known) in zip(chosen, members, strict=True)
            ),
        )
        for chosen in product(CATALOG, repeat=len(tasks))
    )
    found = parts(members, CATALOG, split=True)
    if found is None:
        assert all(len(set(one)) == 1 for one in speeds)
        return
    chosen = [
        reservation(demand, CATALOG, part.speeds, part.others)
        for (demand, _), part in zip(members, found, strict=True)
    ]
    assert all(chosen)
    price = sum(it.price for it in chosen if it)
    speed = sum(
        dict(known)[it.type.family] for it, (_, known) in zip(chosen, members, strict=True) if it
    )
    assert Fraction(price, speed) == cheapest


def _gang(split: bool) -> JobSpec:
    one, two = paced(EVERYWHERE, fast=4, mid=2, slow=1), paced(EVERYWHERE, fast=9, mid=2, slow=1)
    return JobSpec("g", "o", (one, two), kind=JobKind.GANG, training=Training(split_batch=split))


@pytest.mark.parametrize("places", list(product(["fast", "mid", "slow"], repeat=2)))
def test_the_pace_of_a_divided_gang_is_the_mean_of_its_members_speeds(places):
    spec = _gang(split=True)
    found = JobValuation(CATALOG).of(spec)

    def speed(index: int, family: str) -> Fraction:
        return Fraction(dict(spec.tasks[index].throughput)[Family(family)])

    homes = [it.offering.type.family for it in found if it.offering]
    at_home = sum(speed(number, home) for number, home in enumerate(homes))
    there = sum(speed(number, place) for number, place in enumerate(places))
    speeds = [it.speed_on(Family(place)) for it, place in zip(found, places, strict=True)]
    assert divided(speeds, 2) == there / at_home


def test_of_an_elastic_gang_those_count_that_run():
    alike = replace(_gang(split=True), tasks=(paced(EVERYWHERE, fast=9, mid=2, slow=1),) * 4)
    (home, *_) = found = JobValuation(CATALOG).of(alike)
    assert home.offering == SLOW
    assert divided([found[0].speed_on(Family("mid"))], 4) == 2
    assert divided([it.speed_on(Family("slow")) for it in found[:3]], 4) == 1
    assert divided([], 4) == 1


def test_a_fast_member_is_worth_more_to_a_gang_that_divides_batches():
    """Two tasks at 4 and 9 on the fast type: 3 dollars each; slow ones cost 0.3 each."""

    def most(split: bool) -> list[int]:
        spec = _gang(split)
        cluster = Cluster(FAST, MID, SLOW).job("g", *spec.tasks, kind=JobKind.GANG)
        snapshot = cluster.snapshot()
        jobs = tuple(changed(job, split_batch=split) for job in snapshot.jobs)
        problem = Problem(replace(snapshot, jobs=jobs), Valuation())
        return sorted(it.price_on(Family("fast")) - it.price for it in problem.classes)

    assert all(more <= 0 for more in most(split=False)), "the others wait for the slowest"
    assert any(more > 0 for more in most(split=True))
