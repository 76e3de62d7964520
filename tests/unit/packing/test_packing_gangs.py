"""Gangs whose members run faster on some families than on others: what they are worth where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.catalog import Offering
from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.model.resources import Resources
from eva_master.packing.configuration.build import configure, sums, waiting
from eva_master.packing.local_search.configuration_cost import evaluate
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation.gang_pace import GangPart, parts
from eva_master.packing.valuation.reservation_price import cheapest_first, rates
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, Workload
from tests.fakes.snapshots import Cluster, offer, table, task

P3, C7I = Family("p3"), Family("c7i")
FAST = offer("fast", (1, 8, 16), 4.0, family="p3")
SLOW = offer("slow", (0, 8, 16), 1.0, family="c7i")


def paced(spec: TaskSpec, **stated: float) -> TaskSpec:
    """With iterations per second stated per family."""
    each = sorted((Family(family), round(rate * MILLION)) for family, rate in stated.items())
    return replace(spec, throughput=tuple(each))


def either(workload: str = "w", **stated: float) -> TaskSpec:
    return paced(task(workload, p3=(1, 4, 8), c7i=(0, 8, 8)), **stated)


def cpus(workload: str = "c", **stated: float) -> TaskSpec:
    return paced(task(workload, c7i=(0, 8, 8)), **stated)


def gang(*members: TaskSpec, catalog: tuple[Offering, ...] = (FAST, SLOW)) -> Problem:
    cluster = Cluster(*catalog).job("g", *members, kind=JobKind.GANG)
    return Problem(cluster.snapshot(), Valuation())


def worth(problem: Problem, index: int, family: Family) -> float:
    """Of one member by itself on a family, in dollars per hour."""
    number = problem.class_of[problem.snapshot.jobs[0].runs[index]]
    return problem.value({number: 1}, family) / MILLION / MILLION


def test_a_slow_member_is_charged_for_its_whole_gang():
    # An iteration per second costs 4/10 on fast and 1/2 on slow, so both are worth 4 on fast.
    problem = gang(either(p3=10, c7i=2), either(p3=10, c7i=2))
    assert worth(problem, 0, P3) == 4.0
    # On slow it runs at a fifth and so does the other: 4 - 4/5 * 8.
    assert worth(problem, 0, C7I) == pytest.approx(-2.4)
    # By itself it would be worth a fifth of its 4, which is close to what slow costs.
    alone = Cluster(FAST, SLOW).job("a", either(p3=10, c7i=2)).job("b", either(p3=10, c7i=2))
    assert worth(Problem(alone.snapshot(), Valuation()), 0, C7I) == pytest.approx(0.8)


def test_a_gang_on_two_families_is_worth_what_it_does_at_the_pace_of_the_slower():
    problem = gang(either(p3=10, c7i=5), either(p3=10, c7i=5))
    # An iteration costs 1/5 on slow: both are worth 1 there. One alone on fast speeds up nothing.
    assert worth(problem, 0, C7I) == 1.0
    assert worth(problem, 0, P3) == 1.0
    # 3/10 against 1/2: both are worth 3 on fast. One on each, they do a fifth of that.
    problem = gang(
        either(p3=10, c7i=2), either(p3=10, c7i=2), catalog=(replace(FAST, price=3_000_000), SLOW)
    )
    mixed = worth(problem, 0, P3) + worth(problem, 1, C7I)
    assert mixed == pytest.approx(6.0 * 2 / 10)


def test_company_and_a_slow_family_slow_down_together():
    cluster = Cluster(FAST, replace(SLOW, type=replace(SLOW.type, capacity=FAST.type.capacity)))
    cluster.job("g", either("g", p3=10, c7i=2), either("g", p3=10, c7i=2), kind=JobKind.GANG)
    cluster.throughput = table({("g", ("g",)): 0.9})
    problem = Problem(cluster.snapshot(), Valuation())
    # Each: 4 - (1 - 1/5 * 0.9) * 8 on slow, and 4 - (1 - 0.9) * 8 on fast.
    assert problem.value({0: 2}, C7I) == round(2 * (4 - 0.82 * 8) * MILLION * MILLION)
    assert problem.value({0: 2}, P3) == round(2 * (4 - 0.1 * 8) * MILLION * MILLION)


def test_a_member_that_waits_for_a_slower_one_needs_no_fast_instance():
    # Alone the first would be on fast: 4/10 against 1/2. The other one makes 3 at most, and for
    # 3 iterations fast is needed (4 + 1 for 3), for 2 slow will do (1 + 1 for 2).
    fast, slower = either(p3=10, c7i=2), cpus(c7i=3)
    assert worth(gang(fast), 0, P3) == 4.0
    problem = gang(fast, slower)
    assert worth(problem, 0, C7I) == 1.0
    assert worth(problem, 1, C7I) == 1.0
    assert worth(problem, 0, P3) == 1.0, "faster than the gang it is worth no more"
    plan = configure(problem, waiting(problem))
    assert [launch.offering.type.name for launch in plan.launches] == ["slow", "slow"]
    assert sums(problem, plan).savings == 0


def test_a_member_that_others_wait_for_may_cost_more_than_it_would_alone():
    # Alone 1/2 on slow beats 4/7 on fast. With a mate that costs 4 by itself: (1 + 4) / 2 on
    # slow, (4 + 4) / 7 on fast.
    unsure, mate = either(p3=7, c7i=2), paced(task("m", p3=(1, 8, 8)), p3=8)
    assert worth(gang(unsure), 0, P3) == pytest.approx(3.5)
    problem = gang(unsure, mate)
    assert worth(problem, 0, P3) == 4.0
    assert problem.reservation(problem.class_of[problem.snapshot.jobs[0].runs[0]]) == FAST
    assert worth(problem, 0, C7I) == pytest.approx(4 - 5 / 7 * 8)
    plan = configure(problem, waiting(problem))
    assert [launch.offering.type.name for launch in plan.launches] == ["fast", "fast"]


def test_a_member_of_which_nothing_is_known_holds_nobody_up():
    unknown = task("u", c7i=(0, 8, 8))
    catalog = cheapest_first((FAST, SLOW))
    fast = either(p3=10, c7i=2)
    members = [(spec.demand, rates(spec)) for spec in (fast, unknown)]
    # (4 + 1) / 10 against (1 + 1) / 2.
    assert parts(members, catalog) == [
        GangPart(((C7I, 1), (P3, 5)), 1_000_000),
        GangPart((), 4_000_000),
    ]


def test_where_the_pace_cannot_matter_nothing_is_compared():
    catalog = cheapest_first((FAST, SLOW))
    same = either(p3=5, c7i=5)
    assert parts([(same.demand, rates(same))] * 2, catalog) is None
    assert parts([(cpus(c7i=3).demand, ()), (same.demand, rates(same))], catalog) is None
    nowhere = task("n", x=(0, 1, 1))
    assert parts([(nowhere.demand, ()), *_members(either(p3=10, c7i=2))], catalog) is None


def _members(*specs: TaskSpec) -> list[tuple[object, object]]:
    return [(spec.demand, rates(spec)) for spec in specs]


def test_of_equally_cheap_paces_the_slower_one_counts():
    even = either(p3=8, c7i=2)
    catalog = cheapest_first((FAST, SLOW))
    assert parts(_members(even, even), catalog) == [GangPart((), 1_000_000)] * 2
    problem = gang(even, even)
    assert problem.reservation(0) == SLOW
    assert problem.uniform


def test_when_the_fast_family_is_sold_out_the_slow_one_is_no_loss():
    catalog = (replace(FAST, limit=0), SLOW)
    problem = gang(either(p3=10, c7i=2), either(p3=10, c7i=2), catalog=catalog)
    assert worth(problem, 0, C7I) == 1.0
    plan = configure(problem, waiting(problem))
    assert [launch.offering.type.name for launch in plan.launches] == ["slow", "slow"]
    # And when there is one left only, the gang runs at the pace of the other.
    catalog = (replace(FAST, limit=1), SLOW)
    problem = gang(either(p3=10, c7i=2), either(p3=10, c7i=2), catalog=catalog)
    plan = configure(problem, waiting(problem))
    assert sorted(launch.offering.type.name for launch in plan.launches) == ["fast", "slow"]


def test_the_single_task_view_takes_each_member_for_itself():
    cluster = Cluster(FAST, SLOW)
    cluster.job("g", either(p3=10, c7i=2), either(p3=10, c7i=2), kind=JobKind.GANG)
    problem = Problem(cluster.snapshot(), Valuation(multi_task_view=False))
    assert worth(problem, 0, C7I) == pytest.approx(0.8)


def test_measured_rates_count_like_stated_ones():
    plain = either()
    cluster = Cluster(FAST, SLOW).job("a", plain)
    learned = StandaloneRates(
        (((Workload("w"), C7I), 1 * MILLION), ((Workload("w"), P3), 10 * MILLION))
    )
    snapshot = replace(cluster.snapshot(), standalone=learned)
    problem = Problem(snapshot, Valuation())
    assert problem.reservation(0) == FAST
    assert worth(problem, 0, C7I) == pytest.approx(0.4)
    # What a job states of itself goes before, family by family.
    stated = Cluster(FAST, SLOW).job("a", paced(plain, c7i=9)).snapshot()
    problem = Problem(replace(stated, standalone=learned), Valuation())
    assert problem.reservation(0) == SLOW
    # A workload that reports nothing is as if nothing were known.
    silent = StandaloneRates((((Workload("w"), C7I), 0),))
    assert Problem(replace(snapshot, standalone=silent), Valuation()).uniform


def test_shapes_follow_what_was_measured():
    snapshot, cache = Cluster(FAST, SLOW).job("a", either()).snapshot(), PlannerCache()
    (run,) = snapshot.runs
    assert cache.snapshot_shapes(snapshot).of(run).own == SLOW, "nothing is known of its speed"
    learned = StandaloneRates(
        (((Workload("w"), C7I), 1 * MILLION), ((Workload("w"), P3), 10 * MILLION))
    )
    shapes = cache.snapshot_shapes(replace(snapshot, standalone=learned))
    priced, families = shapes.of(run), shapes.prices.families
    assert priced.own == FAST
    assert priced.prices[families[C7I]] * 10 == priced.prices[families[P3]]
    stated = cache.snapshot_shapes(replace(snapshot, standalone=learned))
    own = replace(run, task=paced(run.task, c7i=9))
    assert stated.of(own).own == SLOW, "what a job states goes before"


def test_the_one_objective_takes_the_slowest_member_family_and_company_together():
    spec, mate = either("g", p3=10, c7i=8), cpus("n")
    wide = replace(SLOW, type=replace(SLOW.type, capacity=Resources(0, 16_000, 32_768)))
    cluster = Cluster(FAST, wide).instance("i", "fast").instance("j", "slow")
    cluster.job("g", spec, spec, on=["i", "j"], kind=JobKind.GANG).job("n", mate, on=["j"])
    cluster.throughput = table({("g", ("n",)): 0.9, ("n", ("g",)): 1.0})
    problem = Problem(cluster.snapshot(), Valuation())
    (gang,) = {problem.class_of[run] for run in problem.snapshot.jobs[0].runs}
    assert problem.classes[gang].price == 1_000_000, "the cheapest iteration is on slow"
    terms = CostWeights(lost_ppm=MILLION)
    here = configure(problem, ())
    # Both worth $1 at the pace of slow: one on fast gains nothing, the other one's 0.9 counts.
    assert evaluate(problem, terms, here) == (5_000_000 * MILLION) + 2 * 1_000_000 * 100_000
    dearer = Cluster(replace(FAST, price=1_100_000), wide).instance("i", "fast")
    dearer.instance("j", "slow")
    dearer.job("g", spec, spec, on=["i", "j"], kind=JobKind.GANG).job("n", mate, on=["j"])
    dearer.throughput = cluster.throughput
    problem = Problem(dearer.snapshot(), Valuation())
    # 1.10 / 10 is the cheapest iteration now, so slow costs a fifth, and then a tenth.
    lost = 2 * 1_100_000 * (MILLION - 720_000)
    assert evaluate(problem, terms, configure(problem, ())) == 2_100_000 * MILLION + lost
