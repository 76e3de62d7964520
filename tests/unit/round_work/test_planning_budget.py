"""Tasks that all differ take a round no more than its budget, and all get a place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.distinct import arrived
from eva_master.model.planning.plan import Assign
from eva_master.packing.local_search import search
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.lp.pricing import compiled_knapsack, knapsack
from eva_master.packing.round_work import WorkKind, round_budgets
from eva_master.policies.eva import POLICY
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import Cluster, carried_out, offer, task


class Counted:
    """What a round really works out, whatever the budget says."""

    def __init__(self) -> None:
        self.loads = 0
        self.items = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    known = Counted()
    # Compiled searches count the same.
    monkeypatch.setattr(search, "compiled", lambda: None)
    monkeypatch.setattr(compiled_knapsack, "library", lambda: None)
    sized, fitting = LoadCache._sized_load, knapsack._DepthFirstSearch._fitting

    def load(self, *arguments):
        known.loads += 1
        return sized(self, *arguments)

    def item(self, number, room):
        known.items += 1
        return fitting(self, number, room)

    monkeypatch.setattr(LoadCache, "_sized_load", load)
    monkeypatch.setattr(knapsack._DepthFirstSearch, "_fitting", item)
    return known


@pytest.mark.parametrize("explained", [True, False])
def test_tasks_that_all_differ_are_placed_within_the_budget_of_a_round(counted, explained):
    work = 100_000
    searching, pricing = (budget.left for budget in round_budgets(work))
    snapshot = replace(arrived(120, distinct=True), work=work)
    policy = POLICY.build(POLICY.config(explained=explained))
    plan, memory = policy.plan(snapshot, None)
    if explained:
        check(snapshot, plan)
    assert all(isinstance(entry, Assign) for entry in plan.entries), "each gets a place at once"
    instances = len(plan.launches)
    # Besides those that are met: what the configuration begins with, and what is taken apart.
    most = searching // WorkKind.LOAD + instances + 200
    assert counted.loads <= most
    assert 0 < counted.items <= pricing // WorkKind.SET // 8
    counted.loads = counted.items = 0
    policy.plan(carried_out(snapshot, plan), memory)
    assert counted.loads <= most


def test_without_the_budget_it_is_many_times_as_much(counted):
    snapshot = replace(arrived(120, distinct=True), work=1 << 40)
    POLICY.build(POLICY.config()).plan(snapshot, None)
    assert counted.loads > 5_000


@pytest.mark.parametrize("work", [0, 200, 5_000, 100_000])
def test_a_plan_is_lawful_wherever_the_budget_ends(work):
    cluster = Cluster(
        offer("small", (0, 4, 16), 0.2), offer("large", (0, 16, 64), 0.7, limit=2)
    ).instance("i", "large")
    cluster.job("a", task("a", any=(0, 2, 8)), on=["i"])
    for number in range(12):
        cluster.job(f"b{number}", *[task(f"b{number}", any=(0, 1 + number % 3, 4))] * 2)
    snapshot = replace(cluster.snapshot(), work=work)
    policy = POLICY.build(POLICY.config())
    plan, _ = policy.plan(snapshot, None)
    check(snapshot, plan)
    assert all(isinstance(entry, Assign) for entry in plan.entries)
    # What was remembered of other rounds leaves no more to be met in this one.
    assert policy.plan(snapshot, None)[0] == plan
    assert POLICY.build(POLICY.config()).plan(snapshot, None)[0] == plan
