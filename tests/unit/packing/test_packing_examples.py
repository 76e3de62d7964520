"""Reservation price, Algorithm 1, free room and matching, by the Eva paper's worked examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from eva_master.packing.configuration.build import Configuration, configure, sums, waiting
from eva_master.packing.configuration.matching import MoveCostsByClass, Reusable, match
from eva_master.packing.configuration.move_costs import move_costs
from eva_master.packing.greedy.algorithm1 import PackedSet, pack
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation.reservation_price import cheapest_first, reservation
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, OfferingId, RunId
from tests.fakes.snapshots import START, T1, T2, T3, T4, TABLE_3, Cluster, offer, table, task

ANY = Family("any")
ALONE = Valuation(interference=False)


def table_3() -> Cluster:
    return Cluster(*TABLE_3).job("1", T1).job("2", T2).job("3", T3).job("4", T4)


def problem_of(cluster: Cluster, valuation: Valuation = ALONE) -> Problem:
    return Problem(cluster.snapshot(), valuation)


def by_type(problem: Problem, configuration: Configuration) -> list[tuple[str, set[str]]]:
    """Type and jobs of every instance, live or new."""
    new = {launch.key: launch.offering.type.name for launch in configuration.launches}
    jobs: dict[object, set[str]] = {}
    for run, host in configuration.places.items():
        jobs.setdefault(host, set()).add(run.split("/")[0])
    return sorted(
        (
            new[host] if isinstance(host, int) else problem.instances[host].offering.type.name,
            members,
        )
        for host, members in jobs.items()
    )


def contents(problem: Problem, *jobs: str) -> dict[int, int]:
    """The set of the only tasks of these jobs."""
    numbers = [problem.class_of[RunId(f"{job}/0")] for job in jobs]
    return {number: numbers.count(number) for number in numbers}


@pytest.mark.parametrize(("spec", "usd"), [(T1, 12), (T2, 3), (T3, 0.8), (T4, 0.4)])
def test_reservation_prices_of_table_3(spec, usd):
    found = reservation(spec.demand, cheapest_first(TABLE_3))
    assert found is not None
    assert found.price == usd * MILLION


def test_table_3_is_packed_as_in_the_paper():
    problem = problem_of(table_3())
    configuration = configure(problem, waiting(problem))
    assert by_type(problem, configuration) == [("it1", {"1", "2", "4"}), ("it3", {"3"})]
    assert sums(problem, configuration).price == 12_800_000
    assert sum(task_class.price for task_class in problem.classes) == 16_200_000


@pytest.mark.parametrize(
    ("first", "second", "usd", "together"), [(0.8, 0.9, 12.3, True), (0.7, 0.8, 10.8, False)]
)
def test_tnrp_decides_whether_table_3_tasks_share(first, second, usd, together):
    cluster = Cluster(*TABLE_3).job("1", T1).job("2", T2)
    cluster.throughput = table({("t1", ("t2",)): first, ("t2", ("t1",)): second})
    problem = problem_of(cluster, Valuation())
    assert problem.value(contents(problem, "1", "2"), ANY) == usd * MILLION * MILLION
    configuration = configure(problem, waiting(problem))
    shared = [("it1", {"1", "2"})]
    assert by_type(problem, configuration) == (
        shared if together else [("it1", {"1"}), ("it2", {"2"})]
    )


def test_slowdown_of_one_member_is_charged_for_the_gang_and_may_be_negative():
    gang = task("gang", any=(1, 4, 10))
    cluster = Cluster(*TABLE_3).job("4", T4).job("g", gang, gang, gang, gang)
    cluster.throughput = table({("gang", ("t4",)): 0.7, ("t4", ("gang",)): 1.0})
    whole, single = (
        problem_of(cluster, Valuation()),
        problem_of(cluster, Valuation(multi_task_view=False)),
    )
    # 3 - 4 * 0.3 * 3 + 0.4 against 0.7 * 3 + 0.4
    assert whole.value(contents(whole, "g", "4"), ANY) == -200_000 * MILLION
    assert single.value(contents(single, "g", "4"), ANY) == 2_500_000 * MILLION


def test_members_of_an_array_do_not_slow_each_other_down():
    spec = task("w", any=(1, 4, 10))
    cluster = Cluster(*TABLE_3).job("a", spec, spec, kind=JobKind.ARRAY)
    (only,) = problem_of(cluster, Valuation()).classes
    assert only.charge == only.price == 3_000_000


def test_demand_of_the_offering_s_own_family_counts():
    cluster = Cluster(
        offer("p3.2xlarge", (1, 8, 61), 3.06, family="p3"),
        offer("c7i.2xlarge", (0, 8, 16), 0.357, family="c7i"),
    ).job("1", task("w", p3=(0, 14, 8), c7i=(0, 8, 8)))
    problem = problem_of(cluster)
    assert problem.classes[0].price == 357_000


def test_equal_prices_go_by_offering_id():
    cheap = [offer("b", (0, 8, 8), 1), offer("a", (0, 8, 8), 1), offer("c", (0, 8, 8), 2)]
    found = reservation(task(any=(0, 4, 4)).demand, cheapest_first(cheap))
    assert found is not None
    assert found.type.name == "a"


def test_what_is_out_of_stock_sets_no_reservation_price():
    cluster = Cluster(replace(TABLE_3[2], unavailable_until=START + 1), TABLE_3[1], TABLE_3[0]).job(
        "3", task(any=(0, 2, 2))
    )
    problem = problem_of(cluster)
    assert problem.classes[0].price == 3_000_000
    assert by_type(problem, configure(problem, waiting(problem))) == [("it2", {"3"})]
    cluster.now_ms = START + 1
    assert problem_of(cluster).classes[0].price == 800_000


def test_an_accepted_set_goes_to_the_cheapest_type_that_holds_it():
    cluster = Cluster(offer("large", (0, 16, 64), 1.0), offer("small", (0, 8, 32), 0.9))
    cluster.job("a", task("a", any=(0, 4, 4))).job("b", task("b", any=(0, 4, 4)))
    problem = problem_of(cluster)
    # Together they are worth 1.8 and pay the large type's price, but they fit the small one.
    assert by_type(problem, configure(problem, waiting(problem))) == [("small", {"a", "b"})]


def test_ties_go_to_the_better_aligned_demand():
    cluster = Cluster(offer("box", (0, 10, 100), 1.0))
    for name in ("a", "b"):
        cluster.job(f"small-{name}", task(any=(0, 3, 30))).job(f"big-{name}", task(any=(0, 7, 70)))
    problem = problem_of(cluster)
    # Each is worth a box. By class number alone the two small ones would share the first.
    assert sums(problem, configure(problem, waiting(problem))).price == 2_000_000


def test_limits_are_kept_and_explained():
    cluster = Cluster(offer("only", (0, 4, 16), 1.0, limit=1))
    cluster.job("a", task(any=(0, 4, 4))).job("b", task(any=(0, 4, 4)))
    problem = problem_of(cluster)
    configuration = configure(problem, waiting(problem))
    assert len(configuration.launches) == 1
    assert configuration.unplaced == {"b/0": "limit of only@local/on-demand reached"}


def test_a_used_up_limit_sends_tasks_to_the_next_cheapest_type():
    cluster = Cluster(offer("small", (0, 4, 16), 1.0, limit=1), offer("large", (0, 4, 16), 1.5))
    cluster.job("a", task(any=(0, 4, 4))).job("b", task(any=(0, 4, 4)))
    problem = problem_of(cluster)
    configuration = configure(problem, waiting(problem))
    assert by_type(problem, configuration) == [("large", {"b"}), ("small", {"a"})]


def test_a_task_that_nothing_hosts_is_explained():
    problem = problem_of(Cluster(*TABLE_3).job("a", task(any=(8, 4, 4))))
    configuration = configure(problem, waiting(problem))
    assert configuration.unplaced == {"a/0": "no offering can host 8 GPUs, 4 vCPUs, 4 GiB"}


def test_out_of_stock_is_explained():
    problem = problem_of(Cluster(replace(TABLE_3[0], unavailable_until=START + 1)).job("a", T1))
    configuration = configure(problem, waiting(problem))
    assert configuration.unplaced == {"a/0": "out of stock at present: it1@local/on-demand"}


def test_what_the_cloud_said_is_passed_on():
    refused = replace(
        TABLE_3[0], unavailable_until=START + 1, why_unavailable="the quota of P instances"
    )
    problem = problem_of(Cluster(refused).job("a", T1))
    assert configure(problem, waiting(problem)).unplaced == {
        "a/0": "out of stock at present: it1@local/on-demand (the quota of P instances)"
    }


def test_a_gang_is_placed_whole_or_not_at_all():
    spec = task(any=(0, 4, 4))
    cluster = Cluster(offer("only", (0, 4, 16), 1.0, limit=3))
    cluster.job("a", spec, spec).job("b", spec, spec)
    problem = problem_of(cluster)
    configuration = configure(problem, waiting(problem))
    assert set(configuration.places) == {"a/0", "a/1"}
    assert len(configuration.launches) == 2
    reason = "its gang does not fit as a whole: limit of only@local/on-demand reached"
    assert configuration.unplaced == {"b/0": reason, "b/1": reason}


def test_the_more_urgent_of_equal_gangs_is_placed():
    spec = task(any=(0, 4, 4))
    cluster = Cluster(offer("only", (0, 4, 16), 1.0, limit=2))
    cluster.job("a", spec, spec).job("b", spec, spec, priority=1)
    problem = problem_of(cluster)
    assert set(configure(problem, waiting(problem)).places) == {"b/0", "b/1"}


def test_free_room_is_used_before_anything_is_bought():
    cluster = Cluster(*TABLE_3).instance("i", "it1").job("1", T1, on=["i"]).job("2", T2)
    problem = problem_of(cluster, Valuation())
    configuration = configure(problem, waiting(problem))
    assert configuration.places == {"1/0": "i", "2/0": "i"}
    assert not configuration.launches


def test_free_room_is_not_used_where_it_would_do_harm():
    cluster = Cluster(*TABLE_3).instance("i", "it1").job("1", T1, on=["i"]).job("2", T2)
    cluster.throughput = table({("t1", ("t2",)): 0.7, ("t2", ("t1",)): 1.0})
    problem = problem_of(cluster, Valuation())
    configuration = configure(problem, waiting(problem))
    assert [launch.offering.type.name for launch in configuration.launches] == ["it2"]


def test_an_instance_that_is_coming_up_is_filled_too():
    cluster = Cluster(*TABLE_3).instance("i", "it1", ready=False)
    cluster.job("1", T1, on=["i"], running=False, pinned=True).job("2", T2)
    problem = problem_of(cluster)
    assert configure(problem, waiting(problem)).places["2/0"] == "i"


def test_live_instances_out_of_stock_are_used_again():
    cluster = Cluster(replace(TABLE_3[2], unavailable_until=START + 1), *TABLE_3[:2])
    cluster.instance("i", "it3").job("3", task(any=(0, 6, 20)), on=["i"])
    problem = problem_of(cluster)
    assert configure(problem, problem.snapshot.runs).places == {"3/0": "i"}


BOX = offer("box", (0, 8, 8), 1)


def live(name: str, residents: MoveCostsByClass, *, ready: bool = True) -> Reusable:
    return Reusable(InstanceId(name), BOX.id, ready, residents)


def test_matching_keeps_most_dollars_from_being_spent():
    sets = [PackedSet(BOX, {0: 2, 1: 1}, 1), PackedSet(BOX, {1: 2}, 1)]
    there = [
        live("a", {1: (5, 5)}),
        live("b", {0: (5,), 1: (5,)}),
        live("c", {}, ready=False),
    ]
    hosts = {str(host): dict(wanted) for wanted, host in match(sets, there)}
    assert hosts == {"a": {1: 2}, "b": {0: 2, 1: 1}}


def test_matching_looks_at_all_pairs_together():
    # First come, first served would give a the first set, which shares most with it.
    sets = [PackedSet(BOX, {0: 2, 1: 1}, 1), PackedSet(BOX, {0: 2}, 1)]
    there = [live("a", {0: (9, 9), 1: (1,)}), live("b", {1: (8,)})]
    hosts = {str(host): dict(wanted) for wanted, host in match(sets, there)}
    assert hosts == {"a": {0: 2}, "b": {0: 2, 1: 1}}


def test_matching_weighs_dollars_before_numbers_of_tasks():
    sets = [PackedSet(BOX, {0: 2}, 1), PackedSet(BOX, {1: 1}, 1)]
    (first, *_) = match(sets[:1], [live("a", {0: (1, 1)}), live("b", {0: (3,)})])
    assert first[1] == "b"
    (second, *_) = match(sets[1:], [live("a", {}), live("b", {1: (0,)})])
    assert second[1] == "b", "of no dollars either way: the one with a task to keep"


def test_matching_of_very_many_leaves_what_is_there_alone():
    sets = [PackedSet(BOX, {number: 1}, 40) for number in range(30)]
    there = [live(f"i{n:04}", {n % 30: (1,)}) for n in range(1200)]
    for wanted, host in match(sets, there):
        assert dict(wanted) == {int(str(host)[1:]) % 30: 1}


def test_matching_prefers_instances_that_are_ready_and_launches_the_rest():
    sets = [PackedSet(BOX, {0: 1}, 3)]
    there = [
        live("a", {}, ready=False),
        live("b", {}),
        Reusable(InstanceId("c"), OfferingId("other"), True, {0: (1,)}),
    ]
    assert {host for _, host in match(sets[:1], there) if isinstance(host, str)} == {"a", "b"}
    one = match([PackedSet(BOX, {0: 1}, 1)], there)
    assert [host for _, host in one] == ["b"]
    assert match(sets, there)[-1][1] == sets[0]


def test_what_takes_longer_to_move_costs_more():
    cluster = Cluster(offer("box", (0, 8, 8), 1.0, limit=1), offer("room", (0, 4, 4), 0.6))
    cluster.instance("i", "box")
    cluster.job("a", task(any=(0, 4, 4)), on=["i"], launch_s=10)
    cluster.job("b", task(any=(0, 4, 4)), on=["i"], launch_s=900)
    problem = problem_of(cluster)
    moved = move_costs(problem, problem.snapshot.runs)
    assert moved[RunId("b/0")] > moved[RunId("a/0")] > 0


def test_each_member_of_a_gang_answers_for_all_of_it():
    spec = task(any=(0, 4, 4))
    cluster = Cluster(offer("box", (0, 4, 4), 3.6)).instance("i", "box").instance("j", "box")
    cluster.job("g", spec, spec, on=["i", "j"], checkpoint_s=0, launch_s=1000)
    cluster.instance("k", "box").job("a", spec, on=["k"], checkpoint_s=0, launch_s=1000)
    # Of its own instance and of another one for 1,000 s, and twice as much for a gang of two.
    problem = problem_of(cluster)
    expected = {"g/0": 4_000_000, "g/1": 4_000_000, "a/0": 2_000_000}
    assert move_costs(problem, problem.snapshot.runs) == expected


def test_amounts_beyond_64_bits_stay_exact():
    huge = replace(TABLE_3[3], price=4 * 10**17)
    problem = problem_of(Cluster(huge).job("a", T4).job("b", T4), Valuation(default_ppm=999_999))
    assert problem.values.prices[ANY].dtype == np.object_
    sets, left = pack(problem, problem.counts(problem.class_of), {huge.id: None})
    assert [packed.times for packed in sets] == [2]
    assert not left.any()
    assert problem.value({0: 2}, ANY) == 2 * 4 * 10**17 * 999_999
