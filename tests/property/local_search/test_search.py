"""The search over one objective: its cost is exact, it never ends dearer than it began."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eva_master.model.planning.plan import NewInstance
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import (
    Configuration,
    Host,
    Totalled,
    configure,
    sums,
    waiting,
)
from eva_master.packing.local_search.configuration_cost import evaluate
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.homing import send_home
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.reference import Searching
from eva_master.packing.local_search.search import search
from eva_master.packing.local_search.search_start import (
    SearchResult,
    SearchStart,
    begun,
    configuration,
    search_start,
    within_limits,
)
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.round_work import WorkBudget
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId
from tests.drawing import drawn
from tests.fakes.snapshots import Cluster, offer, table, task

CATALOG = (
    ("p.small", (1, 8, 32), 3.0, "p"),
    ("p.large", (4, 32, 128), 11.0, "p"),
    ("c.small", (0, 4, 8), 0.2, "c"),
    ("c.large", (0, 16, 32), 0.7, "c"),
)
TASKS = (
    task("gpu", p=(1, 4, 16)),
    task("both", p=(0, 6, 12), c=(0, 4, 8)),
    task("small", c=(0, 2, 2), p=(0, 2, 2)),
)


@st.composite
def clusters(draw: st.DrawFn, most: int = 6) -> Snapshot:
    """Small clusters: some tasks run, gangs among them, others wait."""
    limits = st.one_of(st.none(), st.none(), st.integers(2, 5))
    cluster = Cluster(
        *(
            offer(name, size, usd, family=family, limit=draw(limits), setup_s=180)
            for name, size, usd, family in CATALOG
        )
    )
    hosts: list[str] = []
    for number in range(draw(st.integers(0, most))):
        spec = draw(st.sampled_from(TASKS))
        tasks = [spec] * draw(st.sampled_from([1, 1, 2]))
        on: list[str | None] = []
        for _ in tasks:
            kind = "p.large" if draw(st.booleans()) else "p.small"
            host = None
            if len(hosts) < 4 and draw(st.booleans()):
                host = f"i{len(hosts)}"
                cluster.instance(host, kind)
                hosts.append(host)
            on.append(host)
        cluster.job(
            f"j{number}",
            *tasks,
            on=on if all(on) else (),
            pinned=draw(st.sampled_from([False, False, False, True])),
            kind=draw(st.sampled_from(JobKind)),
            checkpoint_s=draw(st.sampled_from([0, 10, 600])),
        )
    cluster.throughput = table(
        draw(
            st.dictionaries(
                st.tuples(
                    st.sampled_from(["gpu", "both", "small"]),
                    st.sampled_from([("gpu",), ("small",), ("both",), ("both", "small")]),
                ),
                st.sampled_from([0.3, 0.8, 0.9, 1.0]),
                max_size=5,
            )
        )
    )
    return cluster.snapshot()


def beginning(snapshot: Snapshot) -> tuple[Problem, LoadCache, Configuration]:
    problem = Problem(snapshot, Valuation())
    return problem, LoadCache(problem, CostWeights()), configure(problem, waiting(problem))


def settled(
    problem: Problem,
    cache: LoadCache,
    start: Configuration,
    numbered: SearchStart,
    result: SearchResult,
) -> tuple[Configuration, int]:
    """The configuration of a search with as few moves as its instances allow, and its cost."""
    home = send_home(numbered, cache, result, WorkBudget())
    return configuration(problem, cache, start, numbered, home), home.total


@drawn(80)
@given(snapshot=clusters(), seed=st.integers(0, 99), trials=st.integers(0, 60))
def test_the_cost_that_is_kept_up_to_date_is_the_cost_worked_out_anew(snapshot, seed, trials):
    problem, cache, start = beginning(snapshot)
    numbered = search_start(problem, cache, start)
    assume(within_limits(cache, numbered, begun(numbered)))
    assert numbered.total == evaluate(problem, cache.terms, start)
    result = search(numbered, cache, [seed], trials)
    assert result.total <= numbered.total
    unsettled = configuration(problem, cache, start, numbered, result)
    assert evaluate(problem, cache.terms, unsettled) == result.total
    found, cost = settled(problem, cache, start, numbered, result)
    assert evaluate(problem, cache.terms, found) == cost <= result.total
    assert found.places.keys() == start.places.keys()
    for each in (unsettled, found):
        sets: dict[Host, Counter[int]] = {}
        for run, host in each.places.items():
            sets.setdefault(host, Counter())[problem.class_of[run]] += 1
        assert each.task_sets == sets
        counted = Totalled(start, sums(problem, start), problem.sold_as)
        assert sums(problem, each, counted) == sums(problem, each)


@drawn(60)
@given(snapshot=clusters(), seed=st.integers(0, 99))
def test_what_is_found_costs_less_and_keeps_limits_wherever_it_began(snapshot, seed):
    # Where a limit made the start buy something dearer the search counts it as cheaper and
    # more than there may be; then only what beats even that is taken.
    problem, cache, start = beginning(snapshot)
    numbered = search_start(problem, cache, start)
    begins = evaluate(problem, cache.terms, start)
    lawful = within_limits(cache, numbered, begun(numbered))
    assert numbered.total == begins or (numbered.total < begins and not lawful)
    result = search(numbered, cache, [seed], 40)
    if result.total < numbered.total:
        found, cost = settled(problem, cache, start, numbered, result)
        assert evaluate(problem, cache.terms, found) == cost < begins
        live = Counter(instance.offering.id for instance in snapshot.instances)
        launched = Counter(launch.offering.id for launch in found.launches)
        for id_, number in launched.items():
            limit = problem.by_id[id_].limit
            assert limit is None or live[id_] + number <= limit


@drawn(60)
@given(snapshot=clusters(), data=st.data())
def test_the_cheapest_instance_is_found_among_those_remembered_as_among_all(snapshot, data):
    problem, cache, start = beginning(snapshot)
    searching = Searching(search_start(problem, cache, start), cache)
    victims = searching.by_excess()
    assume(victims)
    chosen = data.draw(st.lists(st.sampled_from(victims), unique=True))
    pool = [run for slot in chosen for run in slot.movable]
    for slot in chosen:
        searching.take_apart(slot)
    touched = dict.fromkeys(chosen)
    # A gang that would run faster in more company may be overlooked.
    whole = any(job.spec.kind is JobKind.GANG and job.runs[1:] for job in snapshot.jobs)
    for run in pool:
        fresh = [slot for slot in searching.candidates() if slot not in touched]
        others = [slot for slot in searching.slots if slot not in touched]
        spots = [*touched, *fresh]
        costs = []
        for options, known in ((spots, touched), ([*spots, *others], dict.fromkeys(others))):
            slot = searching.cheapest(run, options, touched | known)
            assert slot is not None
            before = searching.total
            contents = slot.load, slot.movable.copy(), slot.members.copy()
            away = searching.away.copy()
            searching.put(run, slot)
            costs.append(searching.total - before)
            searching.restore({slot: contents}, [(run, None)], away, before)
        assert costs[0] == costs[1] or (whole and costs[0] > costs[1])
        slot = searching.cheapest(run, spots, touched)
        assert slot is not None
        touched[slot] = None
        searching.put(run, slot)


@drawn(60)
@given(snapshot=clusters(), seed=st.integers(0, 99))
def test_what_is_undone_never_was(snapshot, seed):
    problem, cache, start = beginning(snapshot)
    numbered = search_start(problem, cache, start)
    best = search(numbered, cache, [seed], 400)
    again = search_start(problem, cache, configuration(problem, cache, start, numbered, best))
    result = search(again, cache, [seed + 1], 60)
    assume(not result.kept)
    assert result == replace(begun(again), tried=result.tried)


def test_a_book_that_has_learned_prices_as_a_new_one():
    cluster = Cluster(*(offer(name, size, usd, family=of) for name, size, usd, of in CATALOG))
    cluster.instance("i", "p.large")
    for name in ("a", "b"):
        cluster.job(name, TASKS[0], on=["i"])
    cluster.job("c", TASKS[2], on=["i"])
    _, cache, _ = beginning(cluster.snapshot())
    totals: set[int] = set()
    for throughput in (0.9, 0.3, 1.0):
        cluster.throughput = table({("gpu", ("gpu", "small")): throughput, ("new", ("gpu",)): 0.5})
        problem, new, start = beginning(cluster.snapshot())
        assert cache.serves(problem, CostWeights())
        totals.add(search_start(problem, cache, start).total)
        assert search_start(problem, new, start).total in totals
    assert len(totals) == 3
    assert not cache.serves(problem, CostWeights(horizon_ms=1))


def every_configuration(problem: Problem, start: Configuration) -> list[Configuration]:
    """All ways to place the task runs that `start` places, on live and new instances."""
    offerings = [offering for offering in problem.offerings if problem.buyable(offering.id)]
    runs = list(start.places)
    live: list[Host] = list(problem.instances)
    found = []
    # New instances are told apart by number: task run n opens at most the n-th.
    for chosen in product([*live, *range(len(runs))], repeat=len(runs)):
        new = [host for host in chosen if isinstance(host, int)]
        if any(host > len(set(new[:n])) for n, host in enumerate(new)):
            continue
        if any(
            problem.runs[c].pinned and h != start.places[c]
            for c, h in zip(runs, chosen, strict=True)
        ):
            continue
        contents: dict[Host, dict[int, int]] = {}
        for run, host in zip(runs, chosen, strict=True):
            row = contents.setdefault(host, {})
            number = problem.class_of[run]
            row[number] = row.get(number, 0) + 1
        launches = []
        for key in sorted(set(new)):
            fitting = [o for o in offerings if problem.fits(o.id, contents[key])]
            if not fitting:
                break
            launches.append(NewInstance(key, fitting[0]))
        else:
            if all(
                isinstance(host, int) or problem.fits(problem.offering_of(host).id, row)
                for host, row in contents.items()
            ):
                places = dict(zip(runs, chosen, strict=True))
                found.append(Configuration(places, contents, tuple(launches), {}))
    return found


def tiny(number: int) -> Snapshot:
    """Four tasks on small clusters of which the best configuration is not the greedy one."""
    cluster = Cluster(
        offer("box", (1, 8, 32), 3.0, setup_s=180),
        offer("pair", (2, 16, 64), 5.0, setup_s=180),
        offer("host", (0, 8, 32), 0.5, setup_s=180),
    ).instance("i0", "box")
    if number % 2:
        cluster.instance("i1", "box").job("a", task("a", any=(1, 4, 8)), on=["i0"])
        cluster.job("b", task("b", any=(1, 4, 8)), on=["i1"])
    else:
        cluster.job("a", task("a", any=(1, 4, 8)), on=["i0"])
        cluster.job("b", task("b", any=(1, 2, 8)))
    cluster.job("c", task("c", any=(0, 4, 8)))
    cluster.job("d", task("d", any=(0, 4 + number, 8)))
    cluster.throughput = table({("a", ("c",)): 0.5, ("b", ("d",)): 0.98, ("a", ("b",)): 0.99})
    return cluster.snapshot()


@pytest.mark.parametrize("number", range(4))
def test_on_tiny_clusters_nothing_is_better(number):
    problem, cache, start = beginning(tiny(number))
    best = min(evaluate(problem, cache.terms, one) for one in every_configuration(problem, start))
    assert search(search_start(problem, cache, start), cache, [0], 200).total == best


def test_the_same_search_finds_the_same():
    problem, cache, start = beginning(tiny(1))
    found = []
    for prices in (cache, LoadCache(problem, cache.terms)):  # whether the cache is new or not
        numbered = search_start(problem, prices, start)
        found.append(settled(problem, prices, start, numbered, search(numbered, prices, [3], 50)))
    assert found[0] == found[1]


def test_a_gang_loses_what_its_slowest_member_does_and_moves_as_one():
    spec = task("g", any=(0, 4, 8))
    cluster = Cluster(offer("box", (0, 8, 32), 1.0))
    cluster.instance("i0", "box").instance("i1", "box")
    cluster.job("g", spec, spec, on=["i0", "i1"], checkpoint_s=30, launch_s=60)
    cluster.job("n", task("n", any=(0, 4, 8)), on=["i0"])
    cluster.throughput = table({("g", ("n",)): 0.8, ("n", ("g",)): 1.0})
    problem, cache, start = beginning(cluster.snapshot())
    terms = cache.terms
    lost = 2 * 1_000_000 * 200_000 * terms.gang_lost_ppm // 1_000_000
    assert evaluate(problem, terms, start) == 2 * 1_000_000 * 1_000_000 + lost
    here, there = InstanceId("i0"), InstanceId("i1")
    ids = sorted(start.places)
    swapped = Configuration({ids[0]: there, ids[1]: here, ids[2]: here}, start.task_sets, (), {})
    moves = 2 * (2 * 1_000_000 * 90_000 * terms.moves_ppm // terms.horizon_ms)
    assert evaluate(problem, terms, swapped) == 2 * 1_000_000 * 1_000_000 + lost + moves


def test_what_a_limit_has_used_up_is_not_for_sale():
    cluster = Cluster(
        offer("cheap", (0, 4, 8), 0.2, limit=1), offer("dear", (0, 4, 8), 0.3)
    ).instance("i", "cheap")
    cluster.job("a", task("a", any=(0, 4, 8)), on=["i"], pinned=True)
    for name in ("b", "c"):
        cluster.job(name, task(name, any=(0, 2, 4)))
    problem, cache, start = beginning(cluster.snapshot())
    assert [cache.offerings[number].type.name for _, number in cache.buyable] == ["dear"]
    numbered = search_start(problem, cache, start)
    assert within_limits(cache, numbered, begun(numbered))
    assert numbered.total == evaluate(problem, cache.terms, start)
    cluster.bought.clear()
    later, other, _ = beginning(cluster.snapshot())
    assert len(other.buyable) == 2
    assert not cache.serves(later, CostWeights()), "one may be bought again"


def test_a_gang_without_all_of_its_members_stays_where_it_is():
    cluster = Cluster(offer("box", (0, 8, 16), 0.4, limit=2), offer("small", (0, 2, 4), 0.1))
    cluster.instance("i", "box").instance("k", "box")
    cluster.job("a", *[task("a", any=(0, 6, 4))] * 2, on=["i", None])
    cluster.job("b", task("b", any=(0, 6, 4)), on=["k"], pinned=True)
    cluster.job("c", task("c", any=(0, 2, 4)), on=["k"])
    problem, cache, start = beginning(cluster.snapshot())
    numbered = search_start(problem, cache, start)
    leaving = Counter(
        numbered.instances[place]
        for place, movable in zip(numbered.places, numbered.movable, strict=True)
        if movable
    )
    assert leaving == {InstanceId("k"): 1}
