"""What is on instances of one offering goes where moving it costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eva_master.model.planning.plan import NewInstance
from eva_master.packing.configuration.build import Configuration, Host, configure
from eva_master.packing.local_search.configuration_cost import evaluate
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.homing import send_home
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.search_start import begun, configuration, search_start
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.round_work import WorkBudget, WorkKind
from eva_wire.values.ids import InstanceId
from tests.fakes.snapshots import Cluster, offer, task

BOX = offer("box", (0, 8, 32), 1.0, setup_s=180)
HALF = task("half", any=(0, 4, 8))


def cluster(*stops_s: int, pinned: bool = False) -> Cluster:
    """An instance per job, on which it runs."""
    made = Cluster(BOX)
    for number, stop_s in enumerate(stops_s):
        made.instance(f"i{number}", "box")
        made.job(f"j{number}", HALF, on=[f"i{number}"], checkpoint_s=stop_s, pinned=pinned)
    return made


def settled(made: Cluster, hosts: Sequence[Host]) -> tuple[list[Host], int]:
    """Where the jobs' tasks are in the end if they were to be on some hosts, and its cost."""
    problem = Problem(made.snapshot(), Valuation())
    cache = LoadCache(problem, CostWeights())
    runs = [run.id for run in problem.snapshot.runs]
    contents: dict[Host, dict[int, int]] = {}
    for run, host in zip(runs, hosts, strict=True):
        row = contents.setdefault(host, {})
        row[problem.class_of[run]] = row.get(problem.class_of[run], 0) + 1
    launches = tuple(NewInstance(key, BOX) for key in contents if isinstance(key, int))
    start = Configuration(dict(zip(runs, hosts, strict=True)), contents, launches, {})
    found, cost = sent_home(problem, cache, start, WorkBudget())
    assert len(found.launches) == sum(isinstance(host, int) for host in set(found.places.values()))
    return [found.places[run] for run in runs], cost


def sent_home(
    problem: Problem, cache: LoadCache, start: Configuration, budget: WorkBudget
) -> tuple[Configuration, int]:
    numbered = search_start(problem, cache, start)
    home = send_home(numbered, cache, begun(numbered), budget)
    found = configuration(problem, cache, start, numbered, home)
    assert home.total == evaluate(problem, cache.terms, found)
    return found, home.total


I0, I1, I2 = (InstanceId(f"i{number}") for number in range(3))


def test_two_that_were_to_change_places_stay():
    assert settled(cluster(60, 60), [I1, I0]) == ([I0, I1], 2 * 10**12)


def test_a_round_of_three_stays():
    assert settled(cluster(60, 60, 60), [I1, I2, I0]) == ([I0, I1, I2], 3 * 10**12)


def test_of_two_that_are_to_share_the_one_stays_whose_move_costs_more():
    places, _ = settled(cluster(60, 600, 60), [I0, I0, I2])
    assert places == [I1, I1, I2]


def test_an_instance_that_would_be_empty_is_used_before_one_is_launched():
    assert settled(cluster(60, 60), [I0, 0]) == ([I0, I1], 2 * 10**12)


@pytest.mark.parametrize("hosts", [[I1, I0], [I0, 0]])
def test_pinned_tasks_are_not_exchanged(hosts: list[Host]):
    made = cluster(60, 60)
    made.job("p", HALF, on=["i1"], pinned=True)
    places, _ = settled(made, [*hosts, I1])
    assert places == [*hosts, I1]


def test_half_a_gang_that_is_back_home_saves_nothing():
    # The other half is elsewhere, so all of it moves, and the task at its old place would have to
    # leave for nothing. The member whose old place is empty goes there: that costs nothing.
    made = Cluster(BOX, offer("chest", (0, 8, 32), 1.1))
    made.instance("i0", "box").instance("i1", "box")
    made.instance("i2", "chest").instance("i3", "chest")
    made.job("g", HALF, HALF, on=["i1", "i2"], checkpoint_s=600)
    made.job("t", HALF, on=["i1"], checkpoint_s=60)
    places, _ = settled(made, [I0, InstanceId("i3"), I1])
    assert places == [I0, I2, I1]


class Compared(WorkBudget):
    """A budget that notes how many instances are compared."""

    def __init__(self, left: int) -> None:
        super().__init__(left)
        self.most = 0

    def spend(self, work: WorkKind, count: int = 1) -> None:
        assert work is WorkKind.EXCHANGED
        self.most = max(self.most, count)
        super().spend(work, count)


@pytest.mark.parametrize("pairs", [0, 2 * 2, 7 * 7, 1_000])
def test_no_more_instances_are_compared_than_the_budget_of_the_round_allows(pairs: int) -> None:
    """Instances come first of which something can go home."""
    made = cluster(*[60] * 20)
    made.instance("empty", "box")
    problem = Problem(made.snapshot(), Valuation())
    places = dict(configure(problem, ()).places)
    first, second = (run for run in places if problem.runs[run].job in ("j14", "j17"))
    places[first], places[second] = places[second], places[first]
    start = replace(configure(problem, ()), places=places)
    budget = Compared(pairs * WorkKind.EXCHANGED)
    plan, _ = sent_home(problem, LoadCache(problem, CostWeights()), start, budget)
    assert budget.most <= pairs
    home = all(place == problem.runs[run].instance for run, place in plan.places.items())
    assert home == (pairs > 0)
