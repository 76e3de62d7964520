"""A trial of the search costs the same in a large gang as in a small one."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calls import Calls
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.local_search import reference
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.reference import CHOICE_DRAWS, ORDER_DRAWS, Searching
from eva_master.packing.local_search.search_start import search_start
from eva_master.packing.problem import Problem, Valuation
from eva_master.testing.snapshots import Cluster, offer, task


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Calls of functions in each trial."""
    trials, attempt = list[int](), Searching.attempt

    def counted(self, *arguments) -> bool:
        calls = Calls(builtins=True)
        with calls.counting():
            kept = attempt(self, *arguments)
        trials.append(0 if kept else calls.made)  # One that is kept goes through all instances.
        return kept

    monkeypatch.setattr(Searching, "attempt", counted)
    return trials


def calls_of_a_trial(members: int, calls: list[int]) -> float:
    """Calls of functions in a trial of a search over a gang of which each member is alone."""
    catalog = offer("small", (0, 2, 4), 0.1), offer("large", (0, 4, 8), 0.25)
    cluster = Cluster(*catalog).job("g", *[task("w", any=(0, 2, 4))] * members)
    problem = Problem(cluster.snapshot(), Valuation())
    cache = LoadCache(problem, CostWeights())
    start = search_start(problem, cache, configure(problem, waiting(problem)))
    draws = np.random.default_rng(1).random((220, CHOICE_DRAWS + ORDER_DRAWS)).tolist()
    calls.clear()
    result = reference.search(start, cache, draws)
    assert result.tried == 220
    undone = [count for count in calls[20:] if count]  # places are looked at once before
    assert len(undone) > 50
    return sum(undone) / len(undone)


def test_a_trial_costs_the_same_in_a_large_gang_as_in_a_small_one(calls: list[int]) -> None:
    assert calls_of_a_trial(1_000, calls) < 1.5 * calls_of_a_trial(100, calls)
