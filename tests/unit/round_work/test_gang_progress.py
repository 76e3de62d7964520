"""The slowest member of a gang is known at once, however large the gang is."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest

from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.gang_progress import GangProgress
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.search import Effort, Search
from eva_master.packing.local_search.working_configuration import WorkingConfiguration
from eva_master.packing.problem import Problem, Valuation
from eva_master.testing.snapshots import Cluster, offer, task
from eva_wire.values.ids import MILLION


@pytest.mark.parametrize("seed", range(20))
def test_the_slowest_is_the_least_of_all_members(seed: int) -> None:
    drawn = random.Random(seed)
    members = [MILLION] * drawn.randint(1, 12)
    counted = GangProgress(len(members))
    for _ in range(200):
        before, after = drawn.choice(members), drawn.choice((MILLION, *range(9)))
        alike = [number for number, figure in enumerate(members) if figure == before]
        changed = drawn.sample(alike, drawn.randint(1, len(alike)))
        for number in changed:
            members[number] = after
        counted.change(before, after, len(changed))
        assert counted.slowest == min(members)
        chosen = set(drawn.sample(range(len(members)), drawn.randint(1, len(members))))
        figure = drawn.randint(0, 10)
        others = [each for number, each in enumerate(members) if number not in chosen]
        without = Counter(members[number] for number in chosen)
        assert counted.slowest_with(figure, without) == min([figure, *others])


class CountedSearch(Search):
    """Counts the calls of functions in its trials."""

    calls = 0

    def _count(self, frame: object, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")

    def _try(self, *arguments) -> bool:
        sys.setprofile(self._count)
        try:
            return super()._try(*arguments)
        finally:
            sys.setprofile(None)


def calls_of_a_trial(members: int) -> float:
    """Calls of functions in a trial of a search over a gang of which each member is alone."""
    catalog = offer("small", (0, 2, 4), 0.1), offer("large", (0, 4, 8), 0.25)
    cluster = Cluster(*catalog).job("g", *[task("w", any=(0, 2, 4))] * members)
    problem = Problem(cluster.snapshot(), Valuation())
    cache = LoadCache(problem, CostWeights())
    working = WorkingConfiguration(problem, cache, configure(problem, waiting(problem)))
    search = CountedSearch(working, cache, [1])
    search.run(Effort(20))  # places that are looked at once
    search.calls, trials = 0, search.tried
    search.run(Effort(200))
    assert search.tried - trials == 200
    return search.calls / 200


def test_a_trial_costs_the_same_in_a_large_gang_as_in_a_small_one() -> None:
    assert calls_of_a_trial(1_000) < 1.5 * calls_of_a_trial(100)
