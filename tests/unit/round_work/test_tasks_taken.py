"""Tasks that the search takes from their places count, however few sets of tasks it meets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.local_search import search
from eva_master.packing.local_search.reference import Searching
from eva_master.packing.round_work import WorkKind, round_budgets
from eva_master.policies.eva import POLICY
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import Cluster, offer, task

TASKS = 600
MOST_AT_A_TIME = 5 * 60
"""A trial takes five instances of sixty tasks apart at most."""


def crowded(members: int) -> Snapshot:
    """Instances of sixty tasks that are all alike, so that there are few sets of them."""
    cluster = Cluster(offer("large", (0, 60, 240), 6.0), offer("small", (0, 4, 16), 0.4))
    cluster.instance("i", "large")
    for number in range(TASKS // members):
        cluster.job(f"j{number:03}", *[task("w", any=(0, 1, 4))] * members)
    return cluster.snapshot()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    take_apart = Searching.take_apart

    def counted(self, slot):
        counts.append(len(slot.movable))
        take_apart(self, slot)

    monkeypatch.setattr(Searching, "take_apart", counted)
    monkeypatch.setattr(search, "compiled", lambda: None)
    return counts


@pytest.mark.parametrize("members", [1, 2])
def test_a_search_takes_no_more_tasks_than_its_budget_allows(taken, members):
    work = 100_000
    searching, _ = round_budgets(work)
    snapshot = replace(crowded(members), work=work)
    plan, _ = POLICY.build(POLICY.config()).plan(snapshot, None)
    check(snapshot, plan)
    assert len(plan.entries) == TASKS
    assert 0 < sum(taken) <= searching.left // WorkKind.TAKEN + MOST_AT_A_TIME
