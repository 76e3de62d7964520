"""The compiled co-location table agrees with the plain look-up."""

from __future__ import annotations

from itertools import combinations_with_replacement

from hypothesis import given
from hypothesis import strategies as st

from eva_master.learning.colocation import key, lookup, observe
from eva_master.model.ids import MILLION, Workload
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.interference.throughput import CoLocation, crowd_of

NAMES = [Workload(name) for name in "abcd"]
multisets = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
tables = st.lists(
    st.tuples(st.sampled_from(NAMES), multisets, st.integers(1, MILLION)), max_size=12
)


def build(entries: list[tuple[Workload, list[Workload], int]]) -> ThroughputTable:
    learned = ThroughputTable()
    for workload, others, ppm in entries:
        learned = observe(learned, key(workload, others), ppm)
    return learned


@given(tables, st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=6))
def test_throughput_is_that_of_the_table(entries, workload, others):
    learned = build(entries)
    compiled = CoLocation(learned, NAMES, 950_000)
    crowd = crowd_of(compiled.index[name] for name in others)
    found = compiled.throughput(compiled.index[workload], crowd)
    assert found == lookup(learned, key(workload, others))


@given(tables, st.lists(st.sampled_from(NAMES), max_size=5))
def test_losses_after_an_arrival_are_those_of_the_table(entries, names):
    learned = build(entries)
    compiled = CoLocation(learned, NAMES, 950_000)
    present = sorted(set(names))
    newcomer, members = compiled.losses_after(crowd_of(compiled.index[name] for name in names))
    for joining in NAMES:
        expected = MILLION - lookup(learned, key(joining, names))
        assert newcomer[compiled.index[joining]] == expected
        for row, workload in enumerate(present):
            others = [*names, joining]
            others.remove(workload)
            expected = MILLION - lookup(learned, key(workload, others))
            assert members[row, compiled.index[joining]] == expected


def test_workloads_that_are_not_there_are_left_out():
    learned = build([(Workload("a"), [Workload("gone")], 1), (Workload("gone"), NAMES, 1)])
    compiled = CoLocation(learned, NAMES, 900_000)
    assert compiled.throughput(0, ((1, 1),)) == 900_000


def test_pairs_are_multiplied_and_rounded_down():
    learned = build([(NAMES[0], [NAMES[1]], 333_333)])
    compiled = CoLocation(learned, NAMES, 950_000)
    assert compiled.throughput(0, ((1, 2),)) == 111_110  # 0.333333 squared is 0.11111088...
    assert compiled.throughput(0, ()) == MILLION


def test_the_order_of_tasks_does_not_matter():
    for others in combinations_with_replacement(NAMES, 3):
        assert lookup(ThroughputTable(), key(NAMES[0], others)) == lookup(
            ThroughputTable(), key(NAMES[0], reversed(others))
        )
