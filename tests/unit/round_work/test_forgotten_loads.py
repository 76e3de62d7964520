"""A figure that is learned of a pair costs as much as there are sets of tasks with both."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from benchmarks.calls import Calls
from eva_master.model.planning.snapshot import Snapshot, ThroughputTable
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.load_cache import Load, LoadCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.ids import Workload

WORKLOADS = 24


def snapshot_of(*observed: tuple[tuple[str, tuple[str, ...]], int]) -> Snapshot:
    cluster = Cluster(offer("large", (0, 32, 64), 1.4))
    for number in range(WORKLOADS):
        cluster.job(f"j{number:02}", task(f"w{number:02}", any=(0, 1, 1)))
    rows = (
        ((Workload(name), tuple(map(Workload, others))), ppm) for (name, others), ppm in observed
    )
    return replace(cluster.snapshot(), throughput=ThroughputTable(tuple(sorted(rows))))


def loads(cache: LoadCache, problem: Problem) -> dict[tuple[int, ...], Load]:
    """Sets of three different tasks, and some of two that are alike and another."""
    (empty,) = cache.empty.values()
    numbers = [cache.number(task_class) for task_class in problem.classes]
    sets = [*combinations(numbers, 3)]
    sets += ((first, first, second) for first, second in combinations(numbers, 2))
    held = {classes: cache.load(empty, classes) for classes in sets}
    for load in held.values():
        cache.lost(load)
    return held


@pytest.mark.parametrize(
    ("others", "most"), [(("w01",), 40), (("w01", "w02"), 40), (("w00",), 400)]
)
def test_losses_follow_the_table_and_no_other_sets_are_looked_at(others, most) -> None:
    before = (("w00", others), 700_000), (("w05", ("w06",)), 900_000)
    after = (("w00", others), 600_000), (("w05", ("w06",)), 900_000)
    problem = Problem(snapshot_of(*before), Valuation())
    cache = LoadCache(problem, CostWeights())
    held = loads(cache, problem)
    losses = {classes: load.lost for classes, load in held.items()}
    later = Problem(snapshot_of(*after), Valuation())
    calls = Calls(below="load_cache")
    with calls.counting():
        assert cache.serves(later, CostWeights())
    fresh = LoadCache(later, CostWeights())
    assert loads(fresh, later).keys() == held.keys()
    expected = {classes: load.lost for classes, load in loads(fresh, later).items()}
    assert {classes: cache.lost(load) for classes, load in held.items()} == expected != losses
    assert calls.made <= most
