"""Prices with scarcity: who runs almost as well elsewhere leaves a limited offering to others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.job import TaskSpec
from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import supply
from eva_master.packing.lp.limit_prices import limit_prices
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.valuation.scarcity import raised
from eva_master.policies.eva import POLICY
from eva_wire.values.ids import MILLION, Family, InstanceId, RunId
from tests.fakes.snapshots import Cluster, carried_out, offer, task

SIZE = (1, 4, 16)
PICKY = task("picky", v=SIZE)
"""It runs on V100s alone."""


def flexible() -> TaskSpec:
    """It is a tenth slower on P100s, which cost almost as much."""
    rates = ((Family("p"), 9 * MILLION), (Family("v"), 10 * MILLION))
    return replace(task("flexible", p=SIZE, v=SIZE), throughput=rates)


def cluster(limit: int | None = 1) -> Cluster:
    return Cluster(
        offer("v100", SIZE, 3, family="v", limit=limit), offer("p100", SIZE, 2.9, family="p")
    )


def problem(snapshot: Snapshot) -> Problem:
    return Problem(snapshot, Valuation(interference=False))


def prices(snapshot: Snapshot) -> dict[str, int]:
    asked = problem(snapshot)
    counts = asked.counts(run.id for run in snapshot.runs)
    return dict(limit_prices(asked, counts, supply(asked, {})))


def planned(snapshot: Snapshot, *, scarcity: bool) -> Plan:
    plan, _ = POLICY.build(POLICY.config(scarcity=scarcity)).plan(snapshot, None)
    return plan


def types(snapshot: Snapshot) -> dict[RunId, str]:
    """The instance type of each task run that has a place."""
    there = {view.id: view.offering.type.name for view in snapshot.instances}
    return {run.id: there[run.instance] for run in snapshot.runs if run.instance is not None}


def test_a_limit_is_worth_what_the_last_instance_saves() -> None:
    # With one V100 less `picky` would wait: $6 an hour, twice its worth, in place of $3. With one
    # more `flexible` would save $0.20: on a P100 it costs $2.90, and a tenth of its worth of $3.
    both = cluster().job("a", flexible()).job("b", PICKY).snapshot()
    assert prices(both) == {"v100@local/on-demand": 1_600_000}
    # One alone is glad of a V100, and nobody asks for a second one.
    assert prices(cluster(limit=2).job("b", PICKY).snapshot()) == {}
    assert prices(cluster(limit=None).job("a", flexible()).snapshot()) == {}


def test_only_prices_of_scarce_offerings_are_raised() -> None:
    snapshot = cluster().instance("i-1", "v100").job("b", PICKY, on=["i-1"]).snapshot()
    dearer = raised(snapshot, {snapshot.catalog[0].id: snapshot.catalog[0].price})
    assert [it.price for it in dearer.catalog] == [6_000_000, 2_900_000]
    assert [it.offering.price for it in dearer.instances] == [6_000_000]
    assert raised(snapshot, {}) is snapshot


@pytest.mark.parametrize("scarcity", [True, False])
def test_a_job_makes_way_for_one_that_can_run_nowhere_else(*, scarcity: bool) -> None:
    there = cluster().instance("i-1", "v100").job("a", flexible(), on=["i-1"])
    snapshot = there.job("b", PICKY).snapshot()
    plan = planned(snapshot, scarcity=scarcity)
    after = types(carried_out(snapshot, plan))
    if not scarcity:
        assert after == {"a/0": "v100"}
        return
    # The optimum: a P100 is bought, and the V100 goes to who needs it.
    assert after == {"a/0": "p100", "b/0": "v100"}
    assert Assign(RunId("b/0"), InstanceId("i-1")) in plan.entries
    # What is bought and told is at the price that is paid.
    assert [it.offering.price for it in plan.launches] == [2_900_000]
    assert plan.figures["price_after_usd_per_hour"] == pytest.approx(5.9)
    assert {it.price_micro_usd_per_hour for it in plan.reasons.hostings} == {2_900_000, 3_000_000}


def test_two_that_arrive_at_once_get_what_suits_both() -> None:
    snapshot = cluster().job("a", flexible()).job("b", PICKY).snapshot()
    plan = planned(snapshot, scarcity=True)
    assert types(carried_out(snapshot, plan)) == {"a/0": "p100", "b/0": "v100"}


@pytest.mark.parametrize("limit", [None, 7])
def test_where_there_is_enough_no_plan_changes(limit: int | None) -> None:
    snapshot = cluster(limit).job("a", flexible()).job("b", PICKY).snapshot()
    policies = [POLICY.build(POLICY.config(scarcity=on)) for on in (True, False)]
    (plan, memory), (other, before) = (policy.plan(snapshot, None) for policy in policies)
    assert plan == other
    # All but the digest that has the options in it.
    kept = {**before.data, "aimed_at": memory.data["aimed_at"]}
    assert memory.data == kept


def test_a_cluster_with_scarce_types_comes_to_rest() -> None:
    cluster_ = cluster().job("a", flexible()).job("b", PICKY).job("c", PICKY)
    snapshot, memory = cluster_.snapshot(), None
    policy = POLICY.build(POLICY.config(scarcity=True))
    for _ in range(3):
        plan, memory = policy.plan(snapshot, memory)
        snapshot = carried_out(snapshot, plan)
    assert not plan.launches
    assert not [entry for entry in plan.entries if isinstance(entry, Assign)]


def test_a_gang_larger_than_the_number_of_instances_does_not_wait_for_ever() -> None:
    # Four members have room on two servers of two GPUs. That they might slow each other down, by a
    # guess, makes them worth less than two servers; but there are no more.
    pair = (2, 2, 8)
    box = offer("box", pair, 1, limit=2)
    gang = [task("gang", any=(1, 1, 4))] * 4
    for snapshot in (
        Cluster(box).job("g", *gang).snapshot(),
        Cluster(box).instance("i-1", "box").instance("i-2", "box").job("g", *gang).snapshot(),
    ):
        plan, _ = POLICY.build(POLICY.config(default_throughput_ppm=500_000)).plan(snapshot, None)
        after = carried_out(snapshot, plan)
        assert sorted(len(view.residents) for view in after.instances) == [2, 2]
    # One that fits nowhere waits.
    snapshot = Cluster(box).job("g", *gang, gang[0]).snapshot()
    plan, _ = POLICY.build(POLICY.config(default_throughput_ppm=500_000)).plan(snapshot, None)
    assert not plan.launches
