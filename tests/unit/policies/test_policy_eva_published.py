"""The published Eva's rounds: what is kept, what is moved, and when it pays."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eva_master.model.planning.plan import Assign, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.problem import Problem, Valuation
from eva_master.policies.eva_published import POLICY
from eva_master.policies.eva_published.memory import load
from eva_wire.values.ids import MILLION, Millis
from tests.fakes.snapshots import (
    T1,
    T2,
    T3,
    T4,
    TABLE_3,
    Cluster,
    carried_out,
    ended,
    offer,
    table,
    task,
)


def decide(
    snapshot: Snapshot, memory: PolicyMemory | None = None, **settings: bool | int | str
) -> tuple[Plan, PolicyMemory]:
    return POLICY.build(POLICY.config(**{"optimizer": "auto", **settings})).plan(snapshot, memory)


def later(snapshot: Snapshot, minutes: int) -> Snapshot:
    return replace(snapshot, now_ms=Millis(snapshot.now_ms + minutes * 60_000))


def bought(plan: Plan) -> list[str]:
    return sorted(launch.offering.type.name for launch in plan.launches)


def moves(plan: Plan) -> set[str]:
    return {entry.run for entry in plan.entries if isinstance(entry, Assign)}


def table_3() -> Snapshot:
    return Cluster(*TABLE_3).job("1", T1).job("2", T2).job("3", T3).job("4", T4).snapshot()


def test_table_3_costs_12_80_an_hour():
    plan, _ = decide(table_3(), interference=False)
    assert bought(plan) == ["it1", "it3"]
    assert plan.figures["price_after_usd_per_hour"] == 12.8
    assert plan.figures["savings_keep_usd_per_hour"] == pytest.approx(16.2 - 12.8)
    assert plan.figures["kind"] == "keep"


def test_the_same_jobs_again_change_nothing():
    snapshot = table_3()
    plan, memory = decide(snapshot)
    placed = carried_out(snapshot, plan)
    for minutes in (0, 5, 500_000):
        plan, after = decide(later(placed, minutes), memory)
        assert (plan.launches, plan.entries) == ((), ())
        assert after == memory


def test_when_a_job_ends_the_one_that_is_left_moves_to_a_cheaper_type_at_once():
    cluster = Cluster(*TABLE_3).job("1", T1).job("2", T2)
    snapshot = cluster.snapshot()
    plan, memory = decide(snapshot)
    assert bought(plan) == ["it1"]
    alone = later(ended(carried_out(snapshot, plan), "1"), 1)
    plan, memory = decide(alone, memory)
    assert bought(plan) == ["it2"]
    assert moves(plan) == {"2/0"}
    assert plan.figures["kind"] == "partial"
    assert plan.figures["price_before_usd_per_hour"] == 12
    assert plan.figures["price_after_usd_per_hour"] == 3
    again, _ = decide(later(carried_out(alone, plan), 5), memory)
    assert again.entries == ()


def test_a_move_that_costs_more_than_it_saves_is_left_out():
    cluster = Cluster(*TABLE_3).instance("i", "it1").job("4", T4, on=["i"], launch_s=1750)
    # An hour and a half of 12.4 against half an hour and 11.6 an hour saved.
    plan, _ = decide(cluster.snapshot())
    assert plan.entries == ()
    assert plan.figures["kind"] == "keep"
    assert plan.figures["migration_cost_partial_usd"] == pytest.approx(12.4 * 1760 / 3600)
    # With two hours ahead it pays.
    plan, _ = decide(cluster.snapshot(), min_horizon_s=7200)
    assert moves(plan) == {"4/0"}


def test_migration_cost_counts_new_instances_and_all_members_of_a_gang():
    slow = replace(TABLE_3[3].type, setup_ms=100_000, acquisition_ms=20_000)
    cluster = Cluster(*TABLE_3[:3], replace(TABLE_3[3], type=slow))
    cluster.instance("i", "it1").instance("j", "it4")
    cluster.job("g", T4, T4, on=["i", "j"], checkpoint_s=10, launch_s=50)
    plan, _ = decide(cluster.snapshot())
    assert moves(plan) == {"g/0"}
    # g/0 holds all of it1 and of the new it4 for a minute, g/1 its own it4; it4 takes two.
    expected = (12 + 0.4 + 0.4) * 60 / 3600 + 0.4 * 120 / 3600
    assert plan.figures["migration_cost_partial_usd"] == pytest.approx(expected)


def test_a_move_of_equal_value_is_not_made():
    cluster = Cluster(offer("a", (0, 4, 16), 0.4), offer("b", (0, 4, 16), 0.4))
    cluster.instance("i", "b").job("4", T4, on=["i"], checkpoint_s=0, launch_s=0)
    assert decide(cluster.snapshot())[0].entries == ()


def apart(*, pinned: bool = False) -> Cluster:
    """Two tasks on instances that pay, which would fit together on one that costs less."""
    cluster = Cluster(offer("box", (0, 8, 32), 1.0), offer("pair", (0, 16, 64), 1.5))
    cluster.instance("i", "box").instance("j", "box")
    spec = task(any=(0, 8, 8))
    return cluster.job("a", spec, on=["i"]).job("b", spec, on=["j"], pinned=pinned)


def test_full_reconfiguration_merges_what_partial_leaves():
    plan, memory = decide(apart().snapshot())
    assert plan.figures["kind"] == "full"
    assert bought(plan) == ["pair"]
    assert moves(plan) == {"a/0", "b/0"}
    rates = memory.data["rates"]
    assert isinstance(rates, dict)
    assert (rates["events"], rates["full"]) == (2.0, 1.0)


def test_full_reconfiguration_can_be_turned_off():
    assert decide(apart().snapshot(), full=False)[0].entries == ()


def test_full_reconfiguration_alone_disregards_what_it_costs():
    snapshot = apart().snapshot()
    assert decide(snapshot, min_horizon_s=1)[0].entries == ()
    assert decide(snapshot, min_horizon_s=1, partial=False)[0].figures["kind"] == "full"


def test_full_reconfiguration_takes_an_event():
    snapshot = apart().snapshot()
    _, memory = decide(snapshot, full=False)
    assert decide(later(snapshot, 600), memory)[0].entries == ()
    arrived = replace(snapshot, completions=1)
    assert decide(arrived, memory)[0].figures["kind"] == "full"


def test_pinned_copies_stay_and_are_reconsidered_once_they_are_free():
    snapshot = apart(pinned=True).snapshot()
    plan, memory = decide(snapshot)
    assert plan.entries == ()
    assert decide(snapshot, memory)[0].entries == ()
    plan, memory = decide(apart().snapshot(), memory)
    assert moves(plan) == {"a/0", "b/0"}


def test_what_is_learned_breaks_up_a_harmful_pair_without_an_event():
    cluster = Cluster(*TABLE_3).instance("i", "it1").job("1", T1, on=["i"]).job("2", T2, on=["i"])
    snapshot = cluster.snapshot()
    plan, memory = decide(snapshot)
    assert plan.entries == ()
    slower = table({("t1", ("t2",)): 0.7, ("t2", ("t1",)): 0.8})
    plan, _ = decide(replace(snapshot, throughput=slower), memory)
    assert plan.figures["kind"] == "partial"
    assert moves(plan) == {"2/0"}
    assert bought(plan) == ["it2"]


def test_interference_can_be_left_out_of_account():
    cluster = Cluster(*TABLE_3).job("1", T1).job("2", T2)
    cluster.throughput = table({("t1", ("t2",)): 0.7, ("t2", ("t1",)): 0.8})
    assert bought(decide(cluster.snapshot())[0]) == ["it1", "it2"]
    assert bought(decide(cluster.snapshot(), interference=False)[0]) == ["it1"]


def test_the_default_throughput_makes_packing_more_or_less_cautious():
    cluster = Cluster(*TABLE_3).job("1", T1).job("2", T2)
    assert bought(decide(cluster.snapshot(), default_throughput_ppm=700_000)[0]) == ["it1", "it2"]
    assert bought(decide(cluster.snapshot(), default_throughput_ppm=MILLION)[0]) == ["it1"]


def test_the_single_task_view_shares_where_the_gang_s_view_does_not():
    gang = task("gang", any=(1, 4, 10))
    cluster = Cluster(*TABLE_3, offer("it5", (1, 8, 61), 3.3))
    cluster.job("g", gang, gang, gang, gang).job("4", T4)
    cluster.throughput = table({("gang", ("t4",)): 0.97, ("t4", ("gang",)): 1.0})
    whole, single = (decide(cluster.snapshot(), multi_task_view=view)[0] for view in (True, False))
    assert "it4" in bought(whole)
    assert "it4" not in bought(single)


def test_a_memory_of_another_version_or_policy_is_ignored():
    snapshot = table_3()
    fresh = decide(snapshot)
    for stranger in (PolicyMemory("eva", 99, {"x": 1}), PolicyMemory("other", 1, {"events": 1})):
        assert decide(snapshot, stranger) == fresh


def test_a_memory_from_when_this_was_a_preset_of_eva_is_read():
    snapshot = Cluster(*TABLE_3).job("1", T1).job("2", T2).snapshot()
    plan, memory = decide(snapshot)
    earlier = PolicyMemory("eva", 2, {**memory.data, "moved": {}})
    after = later(ended(carried_out(snapshot, plan), "1"), 7)
    assert decide(after, earlier) == decide(after, memory)
    assert decide(after, earlier) != decide(after)
    # A search wrote the other one: it counted no events.
    searched = {key: value for key, value in memory.data.items() if key != "rates"}
    assert decide(after, PolicyMemory("eva", 2, searched)) == decide(after)


def waste() -> Snapshot:
    """Algorithm 1 buys a box and a pair, at 1.5 and 1.0; two pairs would do."""
    cluster = Cluster(offer("box", (0, 10, 10), 1.5), offer("pair", (0, 9, 9), 1.0))
    for number in range(2):
        cluster.job(f"a{number}", task("a", any=(0, 5, 5))).job(
            f"b{number}", task("b", any=(0, 4, 4))
        )
    return cluster.snapshot()


def test_the_lower_bound_of_a_round_is_among_its_figures():
    plan, _ = decide(waste(), interference=False, optimizer="lp")
    figures = plan.figures
    assert figures["cost_usd_per_hour"] == figures["price_after_usd_per_hour"] == 2.0
    assert figures["lower_bound_usd_per_hour"] == pytest.approx(2.0, rel=1e-3)
    assert figures["lower_bound_usd_per_hour"] <= 2.0
    assert int(figures["lp_columns"]) > 0


def test_greedy_alone_knows_no_bound():
    plan, memory = decide(waste(), interference=False, optimizer="greedy")
    assert "lower_bound_usd_per_hour" not in plan.figures
    assert memory.data["bound"] == 0


def test_the_lp_finds_what_greedy_does_not():
    costs = {
        optimizer: decide(waste(), interference=False, optimizer=optimizer)[0].figures[
            "cost_usd_per_hour"
        ]
        for optimizer in ("greedy", "lp", "auto")
    }
    assert costs == {"greedy": 2.5, "lp": 2.0, "auto": 2.0}


def test_a_round_in_which_nothing_changed_solves_nothing_and_shows_the_same_bound():
    snapshot = waste()
    first, memory = decide(snapshot, interference=False)
    plan, after = decide(later(carried_out(snapshot, first), 5), memory, interference=False)
    assert plan.figures["lp_iterations"] == 0
    assert plan.figures["lower_bound_usd_per_hour"] == first.figures["lower_bound_usd_per_hour"]
    assert after == memory


def test_columns_are_remembered_by_what_classes_are_and_survive_the_journal():
    snapshot = waste()
    _, memory = decide(snapshot, interference=False)
    again = PolicyMemory(memory.policy, memory.version, json.loads(json.dumps(memory.data)))
    problem = Problem(snapshot, Valuation(interference=False))
    columns = load(again, snapshot).rounds.columns
    assert columns.seeds(problem)
    # Another class comes before the others: numbers change, columns do not.
    more = Cluster(offer("box", (0, 10, 10), 1.5), offer("pair", (0, 9, 9), 1.0))
    more.job("0", task("0", any=(0, 1, 1)))
    for number in range(2):
        more.job(f"a{number}", task("a", any=(0, 5, 5))).job(f"b{number}", task("b", any=(0, 4, 4)))
    changed = Problem(more.snapshot(), Valuation(interference=False))
    before = [
        tuple(problem.classes[n] for n, _ in seed.task_set) for seed in columns.seeds(problem)
    ]
    after = [tuple(changed.classes[n] for n, _ in seed.task_set) for seed in columns.seeds(changed)]
    assert before == after
    # Of classes that are gone nothing is left.
    assert columns.seeds(Problem(table_3(), Valuation())) == []


def test_a_memory_without_columns_is_read_too():
    snapshot = table_3()
    _, memory = decide(snapshot)
    older = {
        key: value
        for key, value in memory.data.items()
        if key not in ("columns", "bounded", "bound")
    }
    read = load(PolicyMemory("eva_published", 1, older), snapshot).rounds
    assert read.events == 4
    assert read.columns.rows == ()


def test_a_policy_that_takes_over_does_not_count_what_happened_before():
    snapshot = replace(table_3(), arrivals=1000, completions=996)
    _, memory = decide(snapshot)
    rates = memory.data["rates"]
    assert isinstance(rates, dict)
    assert rates["events"] == 4.0
    assert memory.data["events"] == 1996
