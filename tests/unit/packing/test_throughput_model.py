"""The throughput model agrees with the paper's rule, written down once more, slowly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.learning.colocation import key, lookup, observe, recorded
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.interference.throughput import (
    UNPROFILED,
    ExactThroughput,
    ThroughputModel,
    alone_with_its_gang,
    multiset,
)
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.valuation.task_classes import UNKNOWN
from eva_wire.values.ids import MILLION, Workload
from tests.fakes.paper import Entries, throughput_by_the_paper

NAMES = [Workload(name) for name in "abcd"]
DEFAULT = 950_000

multisets = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
tables = st.lists(
    st.tuples(st.sampled_from(NAMES), multisets, st.integers(1, MILLION)), max_size=12
)


def by_the_paper(entries: Entries, workload: Workload, others: Sequence[Workload]) -> int:
    return throughput_by_the_paper(entries, workload, others, DEFAULT)


def table_of(entries: Entries) -> ThroughputTable:
    learned = ThroughputTable()
    for workload, others, ppm in entries:
        learned = observe(learned, key(workload, others), ppm)
    return learned


def model_of(entries: Entries, names: Sequence[Workload] = NAMES) -> ThroughputModel:
    return PlannerCache().throughput(table_of(entries), frozenset(names), DEFAULT)


def rest(names: Sequence[Workload], less: Workload) -> list[Workload]:
    others = [*names]
    others.remove(less)
    return others


def ppm_of(model: ExactThroughput, names: Sequence[Workload]) -> dict[Workload, int]:
    found = model.by_workload(multiset(map(model.number, names)))
    return {name: found[model.number(name)] for name in names}


@given(tables, st.lists(st.sampled_from(NAMES), min_size=1, max_size=7))
def test_a_set_runs_as_the_paper_says(entries: Entries, names: list[Workload]) -> None:
    expected = {name: by_the_paper(entries, name, rest(names, name)) for name in names}
    assert ppm_of(model_of(entries), names) == expected
    table = table_of(entries)
    # Numbers that are given as workloads are met say nothing about the order of multiplication.
    by_names = ExactThroughput(partial(recorded, table), DEFAULT, reversed(NAMES[:2]))
    assert ppm_of(by_names, names) == expected
    assert {n: lookup(table, key(n, rest(names, n)), DEFAULT) for n in names} == expected


@given(tables, st.lists(st.sampled_from(NAMES), max_size=5))
def test_losses_after_a_join_are_those_of_the_larger_set(
    entries: Entries, names: list[Workload]
) -> None:
    model = model_of(entries)
    newcomer, members = model.after_join(multiset(model.index[name] for name in names))
    for joining in NAMES:
        column = model.index[joining]
        assert newcomer[column] == MILLION - by_the_paper(entries, joining, names)
        for row, workload in enumerate(sorted(set(names))):
            others = [*rest(names, workload), joining]
            assert members[row, column] == MILLION - by_the_paper(entries, workload, others)


@given(tables, st.lists(st.sampled_from(NAMES), min_size=2, max_size=6))
def test_pairs_alone_err_by_the_rounding_where_no_larger_set_was_observed(
    entries: Entries, names: list[Workload]
) -> None:
    pairs = [entry for entry in entries if len(entry[1]) == 1]
    model = model_of(pairs)
    first, *others = map(model.number, names)
    running = np.ones((1, len(NAMES)))
    for joined in others:
        running = running * model.pairwise.beside(np.array([joined]))
    ppm = model.by_workload(multiset((first, *others)))[first]
    assert -1e-9 <= running[0, first] - ppm / MILLION <= 2e-6 * len(names)
    held = np.zeros((1, len(NAMES)))
    held[0, first] = 3.0
    lost = model.pairwise.lost_to_newcomer(held)
    pair = by_the_paper(pairs, names[0], [names[1]])
    assert lost[0, model.number(names[1])] == pytest.approx(3 * (1 - pair / MILLION))


def test_workloads_that_are_not_there_are_left_out() -> None:
    entries = [(Workload("a"), [Workload("gone")], 1), (Workload("gone"), NAMES, 1)]
    assert ppm_of(model_of(entries), NAMES[:2]) == dict.fromkeys(NAMES[:2], DEFAULT)


def test_pairs_are_multiplied_and_rounded_down() -> None:
    model = model_of([(NAMES[0], [NAMES[1]], 333_333)])
    # 0.333333 squared is 0.11111088...
    assert model.exact(((0, 1), (1, 2))) == (111_110, DEFAULT * DEFAULT // MILLION)
    assert model.exact(((0, 1),)) == (MILLION,)


def test_beside_a_task_that_is_to_be_profiled_nobody_makes_progress() -> None:
    model = model_of([(NAMES[0], [NAMES[1]], 900_000)], [*NAMES, UNPROFILED])
    alone, other = model.index[UNPROFILED], model.index[NAMES[0]]
    assert model.exact(multiset((alone, other))) == (1, 1)
    assert model.exact(multiset((alone, alone))) == (1,)
    assert model.exact(((alone, 1),)) == (MILLION,)
    assert model.after_join(((alone, 1),)).newcomer[other] == MILLION - 1


def test_members_of_a_gang_that_is_to_be_alone_part_if_they_are_known_to_hurt_each_other() -> None:
    a, b, c, unknown = *NAMES[:3], UNKNOWN
    first, second = (
        [alone_with_its_gang(0, it) for it in (a, b, c, unknown)],
        alone_with_its_gang(1, a),
    )
    model = model_of([(a, [b], 600_000), (a, [c], 990_000)], [*NAMES, UNPROFILED, *first, second])

    def pair(one: Workload, other: Workload) -> int:
        return int(model.pairs[model.index[one], model.index[other]])

    assert [pair(first[0], it) for it in first] == [MILLION, 1, MILLION, MILLION]
    for other in (second, UNPROFILED, a):
        assert pair(first[0], other) == pair(other, first[0]) == 1


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eva_master.packing.interference.throughput._TASK_SETS_REMEMBERED", 2)
    model = model_of([])
    for tasks in range(1, 8):
        assert model.exact(((0, tasks),))[0] == by_the_paper([], NAMES[0], NAMES[:1] * (tasks - 1))
        model.after_join(((0, tasks),))
    for known in (model._exact, model._after_join):
        assert len(known) <= 2
