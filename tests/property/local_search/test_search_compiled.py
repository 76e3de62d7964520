"""The compiled search decides what the reference decides, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.compiled.library import library
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.local_search import reference
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.kernel import KernelSearch, small_enough
from eva_master.packing.local_search.kernel_loads import LARGEST
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.search_start import search_start
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.round_work import WorkBudget
from tests.drawing import drawn
from tests.fakes.snapshots import Cluster, offer, table, task
from tests.property.local_search.test_search import clusters

DRAWS = reference.CHOICE_DRAWS + reference.ORDER_DRAWS
MOST = LARGEST // 10**12
"""Dollars an hour above which the kernel is not asked."""


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """Clusters with gangs that share instances, moves that cost, and short offerings."""
    shapes = [
        task(f"w{n}", any=(0, draw(st.integers(1, 6)), draw(st.integers(1, 9)))) for n in range(3)
    ]
    limit = st.one_of(st.none(), st.integers(0, 4))
    cluster = Cluster(
        *(
            offer(
                name,
                (0, 8 * size, 16 * size),
                0.4 * size,
                limit=draw(limit),
                setup_s=draw(st.sampled_from([0, 90, 300])),
            )
            for name, size in (("small", 1), ("large", 3), ("twin", 3), ("huge", 9))
        )
    )
    for host in range(5):
        cluster.instance(f"i{host}", draw(st.sampled_from(["small", "large"])))
    for job in range(draw(st.integers(1, 12))):
        members = draw(st.integers(1, 4))
        on = [f"i{draw(st.integers(0, 4))}" for _ in range(members)]
        cluster.job(
            f"j{job:02}",
            *[draw(st.sampled_from(shapes))] * members,
            on=on if draw(st.integers(0, 3)) == 0 and members < 3 and job < 5 else (),
            checkpoint_s=draw(st.sampled_from([0, 30, 900])),
        )
    pairs = st.tuples(
        st.sampled_from(["w0", "w1", "w2"]), st.sampled_from([("w0",), ("w1",), ("w0", "w2")])
    )
    cluster.throughput = table(
        draw(st.dictionaries(pairs, st.sampled_from([0.4, 0.8, 0.95]), max_size=5))
    )
    return cluster.snapshot()


NAMES = st.sampled_from(["w0", "w1", "w2", "gpu", "small"])
TABLES = st.dictionaries(
    st.tuples(NAMES, st.lists(NAMES, min_size=1, max_size=3).map(tuple)),
    st.sampled_from([0.4, 0.8, 0.95, 1.0]),
    max_size=6,
)


@st.composite
def stories(draw: st.DrawFn) -> list[Snapshot]:
    """A cluster, or two, and what is learned of it by and by."""
    begins = draw(st.lists(st.one_of(clusters(), crowds()), min_size=1, max_size=2))
    learned = draw(st.lists(TABLES, max_size=3))
    return [
        replace(begin, throughput=throughput)
        for begin in begins
        for throughput in (begin.throughput, *map(table, learned))
    ]


@drawn(150)
@given(
    snapshots=stories(),
    seed=st.integers(0, 999),
    left=st.sampled_from([0, 30_000, 400_000, 3_000_000, 1 << 40]),
    ends=st.lists(st.integers(0, 400_000), max_size=8),
)
def test_the_kernel_finds_what_the_reference_finds(snapshots, seed, left, ends):
    opened = library()
    assert opened is not None, "make setup compiles it"
    kernel, caches = KernelSearch(opened), list[LoadCache]()
    for snapshot in snapshots:
        problem = Problem(snapshot, Valuation())
        if not caches or not all(cache.serves(problem, CostWeights()) for cache in caches):
            caches = [LoadCache(problem, CostWeights()) for _ in range(2)]
        start = configure(problem, waiting(problem))
        draws = np.random.default_rng(seed).random((120, DRAWS))
        late = dict(zip(start.places, ends, strict=False))
        told = []
        for cache, searched in zip(
            caches,
            (kernel, lambda n, cache, d: reference.search(n, cache, d.tolist())),
            strict=True,
        ):
            cache.begin(WorkBudget(left))
            numbered = search_start(problem, cache, start, ends=late)
            for _ in range(2):  # the second meets nothing new in this round
                result = searched(numbered, cache, draws)
                loads = {slot: load.classes for slot, load in result.loads.items()}
                told.append((replace(result, loads={}), loads, cache.budget.left, cache.met))
        assert told[:2] == told[2:]


def test_a_cluster_whose_costs_do_not_fit_its_integers_is_not_for_the_kernel():
    for dollars, fits in ((MOST // 100, True), (MOST, False)):
        cluster = Cluster(offer("box", (0, 8, 32), float(dollars)))
        cluster.job("a", task("a", any=(0, 4, 8)))
        problem = Problem(cluster.snapshot(), Valuation())
        cache = LoadCache(problem, CostWeights())
        numbered = search_start(problem, cache, configure(problem, waiting(problem)))
        assert small_enough(numbered, cache) == fits


def test_a_cluster_of_many_tasks_is_for_the_kernel_however_dear_an_offering_is():
    cluster = Cluster(offer("box", (0, 8, 32), 1.0), offer("huge", (8, 64, 256), MOST / 20))
    for number in range(100):
        cluster.job(f"j{number}", task("a", any=(0, 4, 8)))
    problem = Problem(cluster.snapshot(), Valuation())
    cache = LoadCache(problem, CostWeights())
    numbered = search_start(problem, cache, configure(problem, waiting(problem)))
    assert small_enough(numbered, cache)


def test_a_gang_is_for_the_kernel_however_large_it_is():
    """All members lose what the gang loses, which counts once."""
    cluster = Cluster(offer("box", (0, 8, 32), 1.0))
    cluster.job("g", *[task("a", any=(0, 4, 8))] * 4_000)
    problem = Problem(cluster.snapshot(), Valuation())
    cache = LoadCache(problem, CostWeights())
    numbered = search_start(problem, cache, configure(problem, waiting(problem)))
    assert numbered.charges == [4_000 * 1_000_000]
    assert small_enough(numbered, cache)
