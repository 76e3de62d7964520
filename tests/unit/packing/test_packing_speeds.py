"""Tasks that run faster on some families than on others: what they are worth where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eva_master.model.catalog import Purchase, spot_family
from eva_master.model.job import TaskSpec
from eva_master.packing.configuration.build import configure, sums, waiting
from eva_master.packing.greedy.algorithm1 import pack
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation import reservation_price
from eva_master.packing.valuation.reservation_price import Speeds, cheapest_first, reservation
from eva_wire.values.ids import MILLION, Family, RunId
from tests.fakes.snapshots import Cluster, offer, table, task

ALONE = Valuation(interference=False)
P3, C7I = Family("p3"), Family("c7i")
GPU = offer("p3.2xlarge", (1, 8, 61), 3.06, family="p3")
CPU = offer("c7i.2xlarge", (0, 8, 16), 0.357, family="c7i")


def paced(spec: TaskSpec, **rates: float) -> TaskSpec:
    """With iterations per second stated per family."""
    stated = sorted((Family(family), round(rate * MILLION)) for family, rate in rates.items())
    return replace(spec, throughput=tuple(stated))


def speeds_of(spec: TaskSpec) -> Speeds:
    """A task's speeds as a packer compares them."""
    return reservation_price.compared(reservation_price.rates(spec))


def either(workload: str = "w", **rates: float) -> TaskSpec:
    """Runs with a GPU or on CPUs alone."""
    return paced(task(workload, p3=(1, 4, 10), c7i=(0, 8, 10)), **rates)


def test_reservation_price_is_that_of_the_cheapest_iteration():
    # Dollars for 3,600 iterations: 3.06 / 300 = 0.0102 against 0.357 / 10 = 0.0357.
    fast = either(p3=300, c7i=10)
    problem = Problem(Cluster(GPU, CPU).job("a", fast).snapshot(), ALONE)
    (only,) = problem.classes
    assert only.price == 3_060_000
    assert problem.reservation(0) == GPU
    assert problem.value({0: 1}, P3) == 3_060_000 * MILLION
    # A thirtieth of the speed is worth a thirtieth.
    assert problem.value({0: 1}, C7I) == 102_000 * MILLION
    # At 8 times the speed CPUs are cheaper, and an iteration on the GPU is not worth its price.
    slow = Problem(Cluster(GPU, CPU).job("a", either(p3=80, c7i=10)).snapshot(), ALONE)
    assert slow.reservation(0) == CPU
    assert slow.value({0: 1}, C7I) == 357_000 * MILLION
    assert slow.value({0: 1}, P3) == 2_856_000 * MILLION


def test_the_price_of_an_iteration_is_compared_exactly():
    # 1/3 against 2/6, and against a little less: no floating point tells these apart.
    one, two = offer("one", (0, 8, 16), 1, family="one"), offer("two", (0, 8, 16), 2, family="two")
    both = task(one=(0, 1, 1), two=(0, 1, 1))
    catalog = cheapest_first([two, one])
    million = 1_000_000
    even = paced(both, one=3 * million, two=6 * million)
    assert reservation(even.demand, catalog, speeds_of(even)) == one
    odd = replace(
        even, throughput=((one.type.family, 3 * 10**15), (two.type.family, 6 * 10**15 + 1))
    )
    assert reservation(odd.demand, catalog, speeds_of(odd)) == two


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        ({}, ()),
        ({"p3": 5.0}, ()),
        ({"p3": 5.0, "c7i": 5.0}, ()),
        ({"p3": 5.0, "c7i": 0.5}, ((C7I, 1), (P3, 10))),
        ({"p3": 5.0, "c7i": 0.5, "r7i": 9.0}, ((C7I, 1), (P3, 10))),
    ],
)
def test_only_differences_between_the_task_s_families_count(rates, found):
    assert speeds_of(either(**rates)) == found


def test_a_family_of_which_nothing_is_known_counts_as_the_slowest():
    spec = paced(task(p3=(1, 1, 1), c7i=(0, 1, 1), r7i=(0, 1, 1)), p3=4, c7i=2)
    assert dict(speeds_of(spec)) == {"p3": 2, "c7i": 1, "r7i": 1}


def test_tasks_of_one_speed_ratio_are_one_class():
    cluster = Cluster(GPU, CPU).job("a", either(p3=2, c7i=1)).job("b", either(p3=200, c7i=100))
    assert len(Problem(cluster.snapshot(), ALONE).classes) == 1
    cluster.job("c", either(p3=3, c7i=1))
    assert len(Problem(cluster.snapshot(), ALONE).classes) == 2


def test_a_stated_speed_that_is_the_same_everywhere_changes_nothing():
    plain, stated = Cluster(GPU, CPU).job("a", either()), Cluster(GPU, CPU)
    stated.job("a", either(p3=7, c7i=7))
    first, second = Problem(plain.snapshot(), ALONE), Problem(stated.snapshot(), ALONE)
    assert first.classes == second.classes
    assert second.uniform


def test_throughput_is_that_on_the_family_times_that_in_company():
    spec = either(p3=20, c7i=10)
    cluster = Cluster(GPU, replace(CPU, price=2 * CPU.price)).job("a", spec).job("b", spec)
    cluster.throughput = table({("w", ("w",)): 0.9})
    problem = Problem(cluster.snapshot(), Valuation())
    # 0.714 for one on CPUs, which are the cheaper, and twice that on the GPU's family.
    assert problem.value({0: 2}, C7I) == 2 * 714_000 * 900_000
    assert problem.value({0: 2}, P3) == 2 * 1_428_000 * 900_000
    # What is lost is counted from where they run fastest.
    assert problem.lost({0: 2}, P3) == 2 * 1_428_000 * 100_000
    assert problem.lost({0: 2}, C7I) == 2 * 1_428_000 * MILLION - 2 * 714_000 * 900_000


def test_a_set_is_not_moved_to_a_cheaper_family_on_which_it_crawls():
    fast = offer("fast", (0, 8, 8), 2, family="p3")
    slow = offer("slow", (0, 8, 8), 1.5, family="c7i")
    spec = paced(task(p3=(0, 4, 4), c7i=(0, 4, 4)), p3=3, c7i=1)
    cluster = Cluster(fast, slow).job("a", spec).job("b", spec)
    problem = Problem(cluster.snapshot(), ALONE)
    # Worth 4 on the fast one; on the slow one 1.333333, which does not pay 1.50.
    configuration = configure(problem, waiting(problem))
    assert [launch.offering.type.name for launch in configuration.launches] == ["fast"]
    assert sums(problem, configuration).savings == 2_000_000 * MILLION
    assert sums(problem, configuration).lost == 0
    # Were they as fast there, it would be the cheaper one.
    plain = Cluster(fast, slow).job("a", task(p3=(0, 4, 4), c7i=(0, 4, 4)))
    plain.job("b", task(p3=(0, 4, 4), c7i=(0, 4, 4)))
    problem = Problem(plain.snapshot(), ALONE)
    assert sums(problem, configure(problem, waiting(problem))).price == 1_500_000


def test_a_set_moves_to_a_dearer_family_if_it_gains_more_speed_than_that_costs():
    slow = offer("slow", (0, 8, 8), 1.0, family="c7i")
    fast = offer("fast", (0, 8, 8), 1.6, family="p3")
    spec = paced(task(p3=(0, 4, 4), c7i=(0, 4, 4)), p3=3, c7i=2)
    cluster = Cluster(fast, slow).job("a", spec).job("b", spec)
    problem = Problem(cluster.snapshot(), ALONE)
    # An iteration costs 1/2 against 1.6/3. Two on one instance: worth 2 for 1, or 3 for 1.6.
    assert problem.reservation(0) == slow
    configuration = configure(problem, waiting(problem))
    assert [launch.offering.type.name for launch in configuration.launches] == ["fast"]
    assert sums(problem, configuration).savings == 1_400_000 * MILLION


def test_when_a_limit_is_used_up_the_next_cheapest_iteration_counts():
    fast = offer("fast", (0, 4, 8), 2, family="p3", limit=1)
    slow = offer("slow", (0, 4, 8), 1.5, family="c7i")
    spec = paced(task(p3=(0, 4, 4), c7i=(0, 4, 4)), p3=3, c7i=1)
    cluster = Cluster(fast, slow).job("a", spec).job("b", spec)
    problem = Problem(cluster.snapshot(), ALONE)
    configuration = configure(problem, waiting(problem))
    names = sorted(launch.offering.type.name for launch in configuration.launches)
    assert names == ["fast", "slow"]


def test_the_lp_weighs_speed_against_price():
    small = offer("small", (0, 4, 8), 1.0, family="c7i")
    large = offer("large", (0, 12, 24), 2.4, family="p3")
    spec = paced(task(p3=(0, 4, 4), c7i=(0, 4, 4)), p3=1, c7i=2)
    cluster = Cluster(small, large)
    for name in "abc":
        cluster.job(name, spec)
    problem = Problem(cluster.snapshot(), ALONE)
    counts = problem.counts([RunId(f"{name}/0") for name in "abc"])
    supply = dict.fromkeys((small.id, large.id))
    # Three small ones for 3.00; one large one for 2.40 and half of the throughput, worth 1.50.
    sets, _ = Optimizer(problem, Tier.LP).pack(counts, supply)
    assert [(packed.offering.type.name, packed.times) for packed in sets] == [("small", 3)]
    assert Optimizer(problem, Tier.LP).bound(counts, supply) == pytest.approx(3e12)


def test_amounts_beyond_64_bits_stay_exact_at_any_speed():
    huge = replace(CPU, price=4 * 10**17)
    other = replace(GPU, price=10**18)
    spec = either(p3=2.000001, c7i=1)
    cluster = Cluster(huge, other).job("a", spec)
    problem = Problem(cluster.snapshot(), ALONE)
    assert problem.values.prices[P3].dtype == np.object_
    assert problem.value({0: 1}, P3) == 4 * 10**17 * 2_000_001
    _, left = pack(problem, problem.counts(problem.class_of), {huge.id: None})
    assert not left.any()


def test_how_an_instance_is_paid_for_makes_it_no_faster() -> None:
    """Rates are those of machines: on the spot market a task runs as fast as anywhere."""
    spot = spot_family(C7I)
    cheap = offer("c7i.2xlarge", (0, 8, 16), 0.1, family=spot)
    cheap = replace(cheap, purchase=Purchase.SPOT)
    spec = paced(task("w", **{"p3": (1, 4, 10), "c7i": (0, 8, 10), spot: (0, 8, 10)}), c7i=10)
    assert speeds_of(paced(spec, p3=10, c7i=300)) == ((C7I, 30), (spot, 30), (P3, 1))
    # What is known of c7i alone holds for both; of p3 nothing is known.
    assert speeds_of(spec) == ()
    problem = Problem(Cluster(GPU, CPU, cheap).job("a", spec).snapshot(), ALONE)
    assert problem.reservation(0) == cheap
    # With 30 times the speed a GPU is worth more than spot CPUs, but not than an iteration costs.
    fast = paced(spec, p3=300, c7i=10)
    assert Problem(Cluster(GPU, CPU).job("a", fast).snapshot(), ALONE).reservation(0) == GPU
    both = Problem(Cluster(GPU, CPU, cheap).job("a", fast).snapshot(), ALONE)
    assert both.reservation(0) == cheap
