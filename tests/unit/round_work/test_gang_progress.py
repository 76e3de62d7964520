"""A trial of the search costs the same in a large gang as in a small one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest

from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.local_search import reference
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.reference import CHOICE_DRAWS, ORDER_DRAWS, Searching
from eva_master.packing.local_search.search_start import search_start
from eva_master.packing.problem import Problem, Valuation
from eva_master.testing.snapshots import Cluster, offer, task


class Calls:
    """Counts the calls of functions in trials."""

    def __init__(self) -> None:
        self.trials: list[int] = []

    def __call__(self, frame: object, event: str, argument: object) -> None:
        self.trials[-1] += event in ("call", "c_call")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    counted, attempt = Calls(), Searching.attempt

    def profiled(self, *arguments) -> bool:
        counted.trials.append(0)
        sys.setprofile(counted)
        try:
            kept = attempt(self, *arguments)
        finally:
            sys.setprofile(None)
        if kept:  # which goes through all instances once
            counted.trials[-1] = 0
        return kept

    monkeypatch.setattr(Searching, "attempt", profiled)
    return counted


def calls_of_a_trial(members: int, calls: Calls) -> float:
    """Calls of functions in a trial of a search over a gang of which each member is alone."""
    catalog = offer("small", (0, 2, 4), 0.1), offer("large", (0, 4, 8), 0.25)
    cluster = Cluster(*catalog).job("g", *[task("w", any=(0, 2, 4))] * members)
    problem = Problem(cluster.snapshot(), Valuation())
    cache = LoadCache(problem, CostWeights())
    start = search_start(problem, cache, configure(problem, waiting(problem)))
    draws = np.random.default_rng(1).random((220, CHOICE_DRAWS + ORDER_DRAWS)).tolist()
    calls.trials.clear()
    result = reference.search(start, cache, draws)
    assert result.tried == 220
    undone = [count for count in calls.trials[20:] if count]  # places are looked at once before
    assert len(undone) > 50
    return sum(undone) / len(undone)


def test_a_trial_costs_the_same_in_a_large_gang_as_in_a_small_one(calls: Calls) -> None:
    assert calls_of_a_trial(1_000, calls) < 1.5 * calls_of_a_trial(100, calls)
