"""Compiled or not, every packing is the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.greedy import instance_fill
from eva_master.packing.greedy.algorithm1 import pack
from eva_master.packing.greedy.backfill import backfill
from eva_master.packing.problem import Problem, Valuation
from tests.drawing import drawn
from tests.fakes.snapshots import Cluster, offer, task
from tests.property.test_packing import snapshots


def packed(snapshot: Snapshot, valuation: Valuation, *, compiled: bool) -> list[object]:
    """What Algorithm 1 buys, and what it puts into free room."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instance_fill, "_COMPILED_FROM_CANDIDATES", 0)
        if not compiled:
            patch.setattr(instance_fill, "library", lambda: None)
        problem = Problem(snapshot, valuation)
        counts = problem.counts(problem.class_of)
        supply = {offering.id: offering.limit for offering in problem.offerings}
        sets, left = pack(problem, counts, supply)
        joined = backfill(problem, {view.id: {} for view in snapshot.instances}, counts)
    return [*((one, list(one.task_set)) for one in sets), left.tolist(), joined[0]]


@drawn(40)
@given(snapshots(), st.booleans(), st.booleans())
def test_compiled_or_not_the_packing_is_the_same(snapshot, interference, multi_task_view):
    valuation = Valuation(interference, multi_task_view=multi_task_view)
    assert packed(snapshot, valuation, compiled=True) == packed(snapshot, valuation, compiled=False)


def test_many_tasks_that_all_differ_are_packed_alike():
    cluster = Cluster(*(offer(f"t{n}", (0, 4 * n, 8 * n), 0.3 * n) for n in range(1, 6)))
    for number in range(1_200):
        needs = (0, 1 + number % 37 / 16, 1 + number % 41 / 8 + number / 4096)
        cluster.job(f"j{number:04}", task(f"w{number % 5}", any=needs))
    snapshot = cluster.snapshot()
    assert len(Problem(snapshot, Valuation()).classes) >= instance_fill._COMPILED_FROM_CANDIDATES
    for valuation in (Valuation(), Valuation(interference=False)):
        assert packed(snapshot, valuation, compiled=True) == packed(
            snapshot, valuation, compiled=False
        )
