"""A load costs the search as much however many tasks are on it."""

from __future__ import annotations

import pytest

from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.testing.snapshots import Cluster, offer, table, task

TASKS = 60


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tasks that are looked at to price loads."""
    seen: list[int] = []
    figures = LoadCache.figures_on

    def count(self, family, number):
        seen.append(number)
        return figures(self, family, number)

    monkeypatch.setattr(LoadCache, "figures_on", count)
    return seen


def problem(kinds: int, *, slow: float = 0.9) -> Problem:
    cluster = Cluster(offer("large", (0, 1_000, 4_000), 9.0))
    cluster.throughput = table({(f"w{n % 3}", ("w1",)): slow for n in range(3)})
    for number in range(TASKS):
        cluster.job(f"j{number:02}", task(f"w{number % 3}", any=(0, 1 + number % kinds, 2)))
    return Problem(cluster.snapshot(), Valuation())


@pytest.mark.parametrize("kinds", [1, 7, TASKS])
def test_one_task_more_is_one_task_that_is_looked_at(looked_at, kinds):
    seen = problem(kinds)
    cache = LoadCache(seen, CostWeights())
    (load,) = cache.empty.values()
    for run in seen.snapshot.runs:
        load = cache.more(load, cache.number(seen.classes[seen.class_of[run.id]]))
        cache.lost(load)
    assert len(looked_at) == TASKS


def test_after_a_change_of_what_is_known_no_task_is_looked_at_again(looked_at):
    before, after = problem(7), problem(7, slow=0.5)
    cache = LoadCache(before, CostWeights())
    numbers = [
        cache.number(before.classes[before.class_of[run.id]]) for run in before.snapshot.runs
    ]
    load = cache.load(next(iter(cache.empty.values())), numbers)
    lost = cache.lost(load)
    looked_at.clear()
    assert cache.serves(after, CostWeights())
    assert cache.lost(load) > lost
    assert not looked_at
    new = LoadCache(after, CostWeights())
    numbers = [new.number(after.classes[after.class_of[run.id]]) for run in after.snapshot.runs]
    assert cache.lost(load) == new.lost(new.load(next(iter(new.empty.values())), numbers))
