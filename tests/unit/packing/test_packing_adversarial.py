"""Inputs that break packers: nothing needed, everything equal, everything taken, huge amounts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.packing.configuration.build import configure
from eva_master.packing.greedy.algorithm1 import PackedSet
from eva_master.packing.lp.column_generation import EffortLimits
from eva_master.packing.lp.columns import cost
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_wire.values.ids import MILLION
from tests.fakes.snapshots import TABLE_3, Cluster, offer, table, task

ALONE = Valuation(interference=False)


def optimal(
    cluster: Cluster, valuation: Valuation = ALONE
) -> tuple[Problem, list[PackedSet], int | None]:
    """Sets for all tasks, and the lower bound; nothing may be left over."""
    problem = Problem(cluster.snapshot(), valuation)
    counts = problem.counts(problem.class_of)
    supply = {offering.id: offering.limit for offering in problem.offerings}
    optimizer = Optimizer(problem, Tier.LP)
    sets, left = optimizer.pack(counts, supply)
    assert not left.any()
    bound = optimizer.bound(counts, supply)
    assert bound is not None
    assert bound <= cost(problem, sets)
    return problem, sets, bound


def usd(problem: Problem, sets: list[PackedSet]) -> float:
    return cost(problem, sets) / MILLION / MILLION


def test_an_empty_cluster_costs_nothing():
    problem = Problem(Cluster(*TABLE_3).snapshot(), ALONE)
    optimizer = Optimizer(problem, Tier.LP)
    counts = problem.counts(())
    assert optimizer.pack(counts, {})[0] == []
    assert optimizer.bound(counts, {}) == 0


@pytest.mark.parametrize("valuation", [ALONE, Valuation(default_ppm=MILLION)])
def test_tasks_that_need_nothing_ride_along(valuation):
    cluster = Cluster(offer("box", (0, 4, 16), 1.0), offer("gpu", (1, 4, 16), 3.0))
    for number in range(50):
        cluster.job(f"n{number}", task("n", any=(0, 0, 0)))
    cluster.job("a", task("a", any=(0, 4, 0))).job("b", task("b", any=(1, 1, 1)))
    problem, sets, bound = optimal(cluster, valuation)
    assert usd(problem, sets) == 4.0
    assert bound == pytest.approx(4e12, rel=1e-3)


def test_tasks_without_memory_are_packed_by_what_they_need():
    cluster = Cluster(offer("box", (0, 4, 16), 1.0))
    for number in range(8):
        cluster.job(f"a{number}", task(any=(0, 1, 0)))
    problem, sets, _ = optimal(cluster)
    assert usd(problem, sets) == 2.0


def test_demands_as_large_as_a_type_get_one_each():
    cluster = Cluster(offer("box", (2, 4, 16), 1.0), offer("twice", (4, 8, 32), 2.0))
    for number in range(5):
        cluster.job(f"a{number}", task(any=(2, 4, 16)))
    problem, sets, bound = optimal(cluster)
    assert usd(problem, sets) == 5.0
    assert bound == pytest.approx(5e12, rel=1e-3)


def test_hundreds_of_equal_types_with_a_limit_each():
    cluster = Cluster(*(offer(f"t{n:03}", (0, 4, 16), 1.0, limit=1) for n in range(300)))
    for number in range(40):
        cluster.job(f"j{number:02}", task(any=(0, 2, 8)))
    problem, sets, _ = optimal(cluster)
    assert usd(problem, sets) == 20.0
    assert len({packed.offering.id for packed in sets}) == 20


def test_equal_prices_are_told_apart_by_size():
    cluster = Cluster(offer("small", (0, 4, 4), 1.0), offer("large", (0, 8, 8), 1.0))
    for number in range(4):
        cluster.job(f"a{number}", task(any=(0, 2, 2)))
    problem, sets, _ = optimal(cluster)
    assert [(p.offering.type.name, p.times) for p in sets] == [("large", 1)]
    assert usd(problem, sets) == 1.0


def test_a_task_that_one_type_alone_hosts_brings_others_along():
    cluster = Cluster(
        offer("only", (0, 8, 8), 4.0, family="x"), offer("cheap", (0, 4, 4), 1.0, family="y")
    )
    cluster.job("a", task(x=(0, 4, 4)))
    for number in range(2):
        cluster.job(f"b{number}", task(x=(0, 2, 2), y=(0, 4, 4)))
    problem, sets, _ = optimal(cluster)
    assert usd(problem, sets) == 4.0


@pytest.mark.parametrize("value", [0.000001, 0.5, 0.999999, 1.0])
def test_throughput_at_the_edges(value):
    cluster = Cluster(offer("box", (0, 4, 4), 1.0), offer("half", (0, 2, 2), 0.6))
    cluster.throughput = table({("w", ("w",)): value})
    for number in range(6):
        cluster.job(f"a{number}", task("w", any=(0, 2, 2)))
    problem, sets, bound = optimal(cluster, Valuation())
    # Two on a box, less what they lose, or one on a half box each.
    best = min(3 * (1.0 + 2 * 0.6 * (1 - value)), 6 * 0.6)
    assert usd(problem, sets) == pytest.approx(best)
    assert bound == pytest.approx(best * 1e12, rel=1e-3)


def test_what_is_observed_of_three_counts_though_pairs_look_bad():
    cluster = Cluster(offer("box", (0, 3, 3), 1.0), offer("one", (0, 1, 1), 0.5))
    cluster.throughput = table({("w", ("w",)): 0.4, ("w", ("w", "w")): 0.98})
    for number in range(3):
        cluster.job(f"a{number}", task("w", any=(0, 1, 1)))
    problem, sets, bound = optimal(cluster, Valuation())
    assert usd(problem, sets) == pytest.approx(1.0 + 3 * 0.5 * 0.02)
    assert bound is not None
    assert bound > 1e12


@pytest.mark.parametrize("valuation", [ALONE, Valuation()])
def test_what_costs_nothing_is_packed_too(valuation):
    cluster = Cluster(offer("own", (0, 4, 4), 0.0, limit=1), offer("box", (0, 4, 4), 1.0))
    for number in range(3):
        cluster.job(f"a{number}", task(any=(0, 4, 4)))
    problem, sets, bound = optimal(cluster, valuation)
    assert usd(problem, sets) == 2.0
    assert bound == pytest.approx(2e12, rel=1e-3)
    free = Cluster(offer("own", (0, 4, 4), 0.0)).job("a", task(any=(0, 4, 4)))
    assert optimal(free, valuation)[2] == 0


def test_everything_pinned_stays():
    cluster = Cluster(*TABLE_3).instance("i", "it1").instance("j", "it1")
    cluster.job("a", task(any=(1, 4, 10)), on=["i"], pinned=True)
    cluster.job("b", task(any=(1, 4, 10)), on=["j"], pinned=True)
    problem = Problem(cluster.snapshot(), Valuation())
    configuration = configure(problem, (), Optimizer(problem, Tier.LP).pack)
    assert configuration.places == {"a/0": "i", "b/0": "j"}
    assert not configuration.launches


def test_amounts_beyond_64_bits_are_packed_too():
    huge = replace(TABLE_3[3], price=4 * 10**17)
    cluster = Cluster(huge).job("a", task(any=(0, 2, 6))).job("b", task(any=(0, 2, 6)))
    _, sets, _ = optimal(cluster, Valuation(default_ppm=999_999))
    assert [packed.times for packed in sets] == [1]


def test_limits_that_leave_some_out_leave_out_those_that_algorithm_1_does():
    cluster = Cluster(offer("box", (0, 4, 4), 1.0, limit=2))
    for number in range(9):
        cluster.job(f"a{number}", task(any=(0, 1 + number % 3, 1)))
    problem = Problem(cluster.snapshot(), ALONE)
    counts = problem.counts(problem.class_of)
    supply = {offering.id: offering.limit for offering in problem.offerings}
    greedy = Optimizer(problem, Tier.GREEDY).pack(counts, supply)[1]
    optimizer = Optimizer(problem, Tier.LP, (), EffortLimits())
    sets, left = optimizer.pack(counts, supply)
    assert left.tolist() == greedy.tolist()
    assert sum(packed.times for packed in sets) <= 2
    assert optimizer.bound(counts, supply) is None, "they do not all fit"
