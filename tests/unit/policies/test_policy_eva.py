"""Eva's rounds: one objective, one search."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eva_master.model.planning.plan import Assign, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.local_search.configuration_cost import evaluate
from eva_master.packing.local_search.cost_model import CostWeights, MoveCosts
from eva_master.packing.problem import Problem, Valuation
from eva_master.policies.eva import POLICY
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, run_id
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
    return POLICY.build(POLICY.config(**settings)).plan(snapshot, memory)


def later(snapshot: Snapshot, minutes: int) -> Snapshot:
    return replace(snapshot, now_ms=Millis(snapshot.now_ms + minutes * 60_000))


def bought(plan: Plan) -> list[str]:
    return sorted(launch.offering.type.name for launch in plan.launches)


def moves(plan: Plan) -> set[str]:
    return {entry.run for entry in plan.entries if isinstance(entry, Assign)}


def table_3() -> Snapshot:
    return Cluster(*TABLE_3).job("1", T1).job("2", T2).job("3", T3).job("4", T4).snapshot()


def test_it_plans_whenever_something_happens():
    assert POLICY.build(POLICY.config()).name == "eva"
    assert POLICY.config().round_gap_s is None


def test_table_3_costs_12_80_an_hour():
    plan, _ = decide(table_3(), interference=False)
    assert bought(plan) == ["it1", "it3"]
    assert plan.figures["price_after_usd_per_hour"] == 12.8


def test_the_same_jobs_again_change_nothing():
    snapshot = table_3()
    plan, memory = decide(snapshot)
    placed = carried_out(snapshot, plan)
    for minutes in (0, 5, 500_000):
        plan, after = decide(later(placed, minutes), memory)
        assert (plan.launches, plan.entries) == ((), ())
        assert after == memory


def test_when_a_job_ends_the_one_that_is_left_moves_to_a_cheaper_type():
    snapshot = Cluster(*TABLE_3).job("1", T1).job("2", T2).snapshot()
    plan, memory = decide(snapshot)
    assert bought(plan) == ["it1"]
    alone = later(ended(carried_out(snapshot, plan), "1"), 1)
    plan, memory = decide(alone, memory)
    assert (bought(plan), moves(plan), plan.figures["kind"]) == (["it2"], {"2/0"}, "search")
    again, _ = decide(later(carried_out(alone, plan), 5), memory)
    assert again.entries == ()


def wasteful(**delays: int) -> Snapshot:
    """A small task on a large instance: moving saves 11.6 $ an hour."""
    return Cluster(*TABLE_3).instance("i", "it1").job("4", T4, on=["i"], **delays).snapshot()


def test_moves_have_to_pay_within_the_horizon():
    # In an hour 11.6 $ are saved. A move of a task worth 0.4 $/h is charged 0.4 $ an hour.
    assert moves(decide(wasteful(launch_s=28 * 3600, checkpoint_s=0))[0]) == {"4/0"}
    slow = wasteful(launch_s=30 * 3600, checkpoint_s=0)
    assert moves(decide(slow)[0]) == set()
    assert moves(decide(slow, horizon_s=7200)[0]) == {"4/0"}
    assert moves(decide(slow, moves_ppm=250_000)[0]) == {"4/0"}


def test_what_was_moved_a_moment_ago_is_not_moved_again_for_little():
    # A move costs what the task alone does in 30 s; on the smaller instance 0.1 of 0.4 $ an hour
    # are saved. So it pays after 2 min, and has to within half of the time since the last move.
    catalog = offer("a", (0, 4, 16), 0.4), offer("b", (0, 8, 32), 0.5)
    cluster = Cluster(*catalog).instance("i", "b")
    snapshot = cluster.job("4", T4, on=["i"], checkpoint_s=10, launch_s=20).snapshot()
    _, before = decide(Cluster(*catalog).snapshot())

    def moved(ago_s: int, **settings: int) -> set[str]:
        last = {**before.data, "moved": {"4/0": snapshot.now_ms - ago_s * 1000}}
        return moves(decide(snapshot, replace(before, data=last), **settings)[0])

    assert moved(230) == set()
    assert moved(250) == {"4/0"}
    assert moved(130, lasting_ppm=1_000_000) == {"4/0"}
    assert moved(0) == set()
    assert moves(decide(snapshot, before)[0]) == {"4/0"}


def test_of_a_gang_the_member_counts_that_was_not_moved_for_longest():
    cluster = Cluster(*TABLE_3).instance("i", "it1").instance("j", "it1")
    snapshot = cluster.job("g", T4, T4, on=["i", "j"], kind=JobKind.GANG).snapshot()
    problem = Problem(snapshot, Valuation())

    def cost(**ago_s: int) -> int:
        latest = {run_id(JobId("g"), int(member[1:])): ago for member, ago in ago_s.items()}
        times = {run: Millis(snapshot.now_ms - ago * 1000) for run, ago in latest.items()}
        return MoveCosts(problem, CostWeights(), times).cost["g"]

    assert cost(_0=0) == cost()
    assert cost(_0=0, _1=1800) == pytest.approx(4 * cost())
    assert cost(_0=7200, _1=0) == cost()


def test_moves_are_remembered_until_they_no_longer_matter():
    snapshot = wasteful()
    plan, memory = decide(snapshot)
    assert memory.data["moved"] == {"4/0": snapshot.now_ms}
    placed = replace(carried_out(snapshot, plan), completions=1)
    assert decide(later(placed, 119), memory)[1].data["moved"] == {"4/0": snapshot.now_ms}
    assert decide(later(placed, 120), memory)[1].data["moved"] == {}
    gone = replace(placed, jobs=(), runs=())
    assert decide(later(gone, 1), memory)[1].data["moved"] == {}


def test_launches_have_to_pay_too():
    def cluster(setup_s: int) -> Snapshot:
        slow = replace(TABLE_3[3].type, setup_ms=setup_s * 1000)
        catalog = (*TABLE_3[:3], replace(TABLE_3[3], type=slow))
        return Cluster(*catalog).instance("i", "it3").job("4", T4, on=["i"]).snapshot()

    assert moves(decide(cluster(1800))[0]) == {"4/0"}
    # 0.4 $ saved, 0.4 $ for the launch, and the move.
    assert moves(decide(cluster(3600))[0]) == set()


def test_a_move_of_equal_value_is_not_made():
    cluster = Cluster(offer("a", (0, 4, 16), 0.4), offer("b", (0, 4, 16), 0.4))
    cluster.instance("i", "b").job("4", T4, on=["i"], checkpoint_s=0, launch_s=0)
    assert decide(cluster.snapshot())[0].entries == ()


def pair(throughput: float) -> Snapshot:
    """Two tasks that share an instance of 1.5 $, each of which would fit one of 1 $."""
    cluster = Cluster(offer("box", (0, 8, 32), 1.0), offer("pair", (0, 16, 64), 1.5))
    cluster.instance("i", "pair")
    for name in ("a", "b"):
        cluster.job(name, task(name, any=(0, 8, 8)), on=["i"], checkpoint_s=1, launch_s=1)
    cluster.throughput = table({("a", ("b",)): throughput, ("b", ("a",)): throughput})
    return cluster.snapshot()


def test_those_that_harm_each_other_part_and_others_stay_together():
    # Parting costs 0.5; together they lose 2 * (1 - t), of which 70 % count.
    assert moves(decide(pair(0.7))[0]) == set()
    assert len(moves(decide(pair(0.6))[0])) == 2  # two that cost 1 for one that costs 1.5
    assert moves(decide(pair(0.6), interference=False)[0]) == set()


def test_what_is_learned_is_acted_on_without_an_event():
    snapshot = pair(1.0)
    plan, memory = decide(snapshot)
    assert plan.entries == ()
    worse = replace(snapshot, throughput=pair(0.5).throughput)
    plan, memory = decide(worse, memory)
    assert len(moves(plan)) == 2
    assert decide(carried_out(worse, plan), memory)[0].entries == ()


def test_variants_of_a_workload_teach_each_other():
    snapshot = pair(1.0)
    runs = tuple(
        replace(run, task=replace(run.task, workload=type(run.task.workload)(f"{run.job}[1]")))
        for run in snapshot.runs
    )
    known = table({("a[2]", ("b[7]",)): 0.5, ("b[7]", ("a[2]",)): 0.5})
    variants = replace(snapshot, runs=runs, throughput=known)
    assert len(moves(decide(variants)[0])) == 2
    assert moves(decide(variants, by_base=False)[0]) == set()


def test_sets_teach_about_pairs():
    snapshot = replace(pair(1.0), throughput=table({("a", ("b", "c")): 0.3, ("a", ("c",)): 0.95}))
    assert len(moves(decide(snapshot)[0])) == 2
    assert moves(decide(snapshot, infer_pairs=False)[0]) == set()


def test_pinned_copies_stay_and_are_reconsidered_once_they_are_free():
    cluster = Cluster(*TABLE_3).instance("i", "it1").job("4", T4, on=["i"], pinned=True)
    snapshot = cluster.snapshot()
    plan, memory = decide(snapshot)
    assert plan.entries == ()
    free = replace(snapshot, runs=tuple(replace(run, pinned=False) for run in snapshot.runs))
    plan, memory = decide(free, memory)
    assert moves(plan) == {"4/0"}
    assert decide(carried_out(free, plan), memory)[0].entries == ()


def test_limits_hold():
    cluster = Cluster(*(replace(o, limit=1) if o.type.name == "it4" else o for o in TABLE_3))
    cluster.instance("i", "it1").instance("j", "it4")
    cluster.job("4", T4, on=["i"]).job("5", T4, on=["j"])
    plan, _ = decide(cluster.snapshot())
    assert "it4" not in bought(plan)


def crowd() -> Snapshot:
    cluster = Cluster(*(replace(o, type=replace(o.type, setup_ms=180_000)) for o in TABLE_3))
    for number in range(3):
        cluster.instance(f"i{number}", "it1").job(f"a{number}", T2, T4, on=[f"i{number}"] * 2)
    for number in range(12):
        cluster.job(f"w{number}", (T1, T2, T3, T4)[number % 4])
    return cluster.snapshot()


@pytest.mark.parametrize("options", [{}, {"afresh_every": 1}, {"optimizer": "greedy"}])
def test_what_is_chosen_is_never_dearer_than_what_it_began_with(options):
    snapshot = crowd()
    plan, _ = decide(snapshot, **options)
    problem = Problem(snapshot, Valuation())
    keep = evaluate(problem, CostWeights(), configure(problem, waiting(problem)))
    objective = plan.figures["objective_usd_per_hour"]
    assert isinstance(objective, float)
    assert objective * 10**12 <= keep
    assert plan.figures["cost_usd_per_hour"] <= objective / 0.7


def test_the_plan_is_the_same_whatever_was_planned_before_and_in_another_process():
    policy, snapshot = POLICY.build(POLICY.config()), crowd()
    policy.plan(table_3(), None)
    policy.plan(pair(0.6), None)
    plan, memory = policy.plan(snapshot, None)
    assert (plan, memory) == decide(snapshot)
    again = PolicyMemory(memory.policy, memory.version, json.loads(json.dumps(memory.data)))
    assert decide(later(snapshot, 5), again) == decide(later(snapshot, 5), memory)


def test_without_reasons_it_decides_the_same():
    told, untold = decide(crowd())[0], decide(crowd(), explained=False)[0]
    assert (told.launches, told.entries) == (untold.launches, untold.entries)
    assert told.reasons.hostings
    assert not untold.reasons.hostings
    assert told.reasons.weighing is not None
    assert told.reasons.weighing.chosen == "search"
    assert told.reasons.weighing.lower_bound_micro_usd_per_hour is not None
    assert told.figures["lower_bound_usd_per_hour"] <= told.figures["cost_usd_per_hour"]
    placed = carried_out(crowd(), untold)
    memory = decide(crowd(), explained=False)[1]
    assert decide(placed, memory, explained=False)[0].entries == ()
