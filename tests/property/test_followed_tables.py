"""What follows a table from version to version is what the last version comes to from scratch."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eva_master.learning.colocation import Key, forget, key, observe
from eva_master.model.planning.snapshot import StandaloneRates, ThroughputTable
from eva_master.packing.incremental.view import IncrementalView, changes
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_wire.values.ids import MILLION, Family, Workload, base_of
from tests.fakes.snapshots import Cluster, offer, task

NAMES = [Workload(name) for name in ("a", "a[1]", "a[2]", "ab", "b[1]", "c")]
keys = st.builds(
    key, st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)
)
lessons = st.tuples(keys, st.none() | st.sampled_from([1, 400_000, 900_000, MILLION]))
stories = st.lists(st.lists(lessons, min_size=1, max_size=6), min_size=1, max_size=5)
"""What is learned between one version and the next; `None`: it is forgotten."""


def told(story: list[list[tuple[Key, int | None]]]) -> list[ThroughputTable]:
    """The versions that a table goes through."""
    versions = [ThroughputTable()]
    for chapter in story:
        table = versions[-1]
        for entry, ppm in chapter:
            table = forget(table, entry) if ppm is None else observe(table, entry, ppm)
        versions.append(table)
    return versions


def copied(table: ThroughputTable) -> ThroughputTable:
    """An equal table none of whose rows are the same objects."""
    return ThroughputTable(
        tuple(((name, (*others,)), ppm) for (name, others), ppm in table.observed)
    )


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.booleans())
def test_changes_are_the_rows_that_are_in_one_version_alone(
    before: set[int], after: set[int], shared: bool
) -> None:
    # Tuples, since equal ones need not be the same objects.
    first = tuple((number, "row") for number in sorted(before))
    rows = {row: row for row in first if shared}
    second = tuple(rows.get((number, "row"), (number, "row")) for number in sorted(after))
    assert changes(first, second) == (
        sorted(set(first) - set(second)),
        sorted(set(second) - set(first)),
    )


@given(stories)
def test_means_are_those_of_all_variants(story: list[list[tuple[Key, int | None]]]) -> None:
    cache = PlannerCache()
    for table in told(story):
        seen: dict[Key, list[int]] = {}
        for (workload, others), ppm in table.observed:
            seen.setdefault(key(base_of(workload), map(base_of, others)), []).append(ppm)
        means = tuple((entry, sum(each) // len(each)) for entry, each in sorted(seen.items()))
        assert cache.by_base(table) == ThroughputTable(means)


@given(stories)
def test_inferred_pairs_are_those_of_the_table_alone(
    story: list[list[tuple[Key, int | None]]],
) -> None:
    versions, cache = told(story), PlannerCache()
    followed = [cache.with_pairs(table, 950_000) for table in versions]
    for table, found in zip(versions, followed, strict=True):
        assert found == PlannerCache().with_pairs(copied(table), 950_000)
        assert set(table.observed) <= set(found.observed)
        assert list(found.observed) == sorted(found.observed)


@given(stories)
def test_rows_that_stay_are_the_same_objects(story: list[list[tuple[Key, int | None]]]) -> None:
    before: dict[Key, object] = {}
    cache = PlannerCache()
    for table in told(story):
        rows = cache.with_pairs(cache.by_base(table), 950_000).observed
        assert all(before[row[0]] is row for row in rows if before.get(row[0]) == row)
        before = {row[0]: row for row in rows}


@given(stories)
def test_an_indexed_table_says_what_the_table_does(
    story: list[list[tuple[Key, int | None]]],
) -> None:
    cache = PlannerCache()
    for table in told(story):
        found = cache.observations(table)
        assert found.table == table
        assert found.values == dict(table.observed)
        pairs = {
            (workload, other): ppm
            for workload, known in found.pairs.items()
            for other, ppm in known.items()
        }
        assert pairs == {(w, others[0]): p for (w, others), p in table.observed if len(others) == 1}
        for name in NAMES:
            mentioned = any(name in (w, *others) for (w, others), _ in table.observed)
            assert found.mentions(name) == mentioned


@given(stories)
def test_a_digest_depends_on_the_version_alone(story: list[list[tuple[Key, int | None]]]) -> None:
    versions, cache = told(story), PlannerCache()
    digests = [cache.digest(table) for table in versions]
    assert [cache.digest(copied(table)) for table in reversed(versions)] == digests[::-1]
    assert [PlannerCache().digest(table) for table in versions] == digests
    assert len(set(digests)) == len(set(versions))


@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.sampled_from(NAMES), st.sampled_from("pc")), st.integers(0, 3)
        ),
        max_size=4,
    )
)
def test_rates_are_those_that_were_measured(story: list[dict[tuple[Workload, str], int]]) -> None:
    cache = PlannerCache()
    for rates in story:
        rows = tuple(((name, Family(on)), rate) for (name, on), rate in sorted(rates.items()))
        expected: dict[Workload, tuple[tuple[Family, int], ...]] = {}
        for (name, family), rate in rows:
            expected[name] = (*expected.get(name, ()), (family, rate))
        assert cache.measured_rates(StandaloneRates(rows)) == expected


def cluster() -> Cluster:
    made = Cluster(offer("box", (0, 16, 64), 1.0), offer("half", (0, 8, 32), 0.55))
    for number, name in enumerate(NAMES):
        members = [task(name, any=(0, 2, 4))] * (1 + number % 2)
        made.job(f"j{number}", *members)
    return made


@given(stories)
@example([[(key(NAMES[0], [NAMES[0]]), 400_000)], [(key(NAMES[0], [NAMES[0]]), 900_000)]])
@pytest.mark.parametrize("beliefs", [{}, {"by_base": True, "infer_pairs": True}])
def test_a_book_that_has_learned_says_what_a_new_one_does(
    beliefs: dict[str, bool], story: list[list[tuple[Key, int | None]]]
) -> None:
    made, terms, loads_, cache = cluster(), CostWeights(), None, PlannerCache()
    for table in told(story):
        made.throughput = table
        problem = Problem(made.snapshot(), Valuation(**beliefs), cache)
        new = LoadCache(problem, terms)
        loads_ = loads_ or new
        assert loads_.serves(problem, terms)
        for size in (1, 2, 3):
            for crowd in combinations_with_replacement(problem.classes, size):
                found, loads = [], []
                for each in (loads_, new):
                    root = each.empty[Family("any")]
                    load = each.load(root, map(each.number, crowd))
                    found.append(each.lost(load))
                    loads.append({crowd[0]: load.progress.get(each.number(crowd[0]))})
                assert found[0] == found[1]
                assert loads[0] == loads[1]


def test_the_last_versions_are_remembered() -> None:
    steps: list[tuple[int, ...]] = []

    def step(_: int, rows: tuple[int, ...], gone: list[int], new: list[int]) -> int:
        steps.append((len(gone), len(new)))
        return sum(rows)

    lineage, first, second = (
        IncrementalView[int, int](0, step),
        (1_000, 2_000),
        (1_000, 2_000, 3_000),
    )
    assert [lineage.of(rows) for rows in (first, second, first, second)] == [3_000, 6_000] * 2
    assert steps == [(0, 2), (0, 1)]
