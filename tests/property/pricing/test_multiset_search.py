"""The search over workload multisets, compiled and in Python, beside trying all sets."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.packing.compiled.library import library
from eva_master.packing.lp.pricing import multisets_reference
from eva_master.packing.lp.pricing.multisets_reference import MultisetQuestion
from eva_master.packing.lp.pricing.workload_multisets import compiled_search
from tests.drawing import drawn

UNLIMITED = 1 << 40


@st.composite
def questions(draw: st.DrawFn) -> MultisetQuestion:
    """Up to seven classes of up to three workloads on a machine for up to seven tasks."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    labels, classes = len(sizes), sum(sizes)
    numbers = st.floats(0.05, 1.0)

    def array(*shape: int, of: st.SearchStrategy[float] = numbers) -> np.ndarray:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(of, min_size=size, max_size=size))).reshape(shape)

    starts = np.cumsum([0, *sizes])
    capacity = array(4, of=st.integers(3, 7))
    need = array(classes, 4, of=st.integers(0, 3))
    need[:, 0] = np.maximum(need[:, 0], 1)
    fraction = need / capacity
    most = array(classes, of=st.integers(1, 3))
    directions = array(draw(st.integers(1, 3)), 4)
    directions /= directions.sum(axis=1, keepdims=True)
    value = array(classes)
    sets = draw(st.integers(0, 3))
    rows = np.hstack([array(sets, labels, of=st.integers(0, 2)), np.zeros((sets, 1), dtype=int)])
    for row in rows:
        row[-1] = draw(st.integers(0, labels - 1))
        row[row[-1]] += 1
    return MultisetQuestion(
        value=value,
        charge=array(classes),
        fraction=fraction,
        need=need,
        most=most,
        starts=starts,
        pairs=array(labels, labels, of=st.sampled_from([0.0, 0.3, 0.8, 0.95, 1.0])),
        directions=directions,
        shares=np.ascontiguousarray(np.maximum(fraction @ directions.T, 1e-12).T),
        observed=rows.astype(np.int64),
        rates=array(sets),
        capacity=capacity,
        least=np.minimum.reduceat(need, starts[:-1], axis=0),
        tasks=np.add.reduceat(most, starts[:-1]),
        nodes=draw(st.sampled_from([0, 1, 5, 30, UNLIMITED, UNLIMITED])),
        limit=draw(st.sampled_from([0.01, 0.3, 1.0])),
        whole=float((value * most).sum()),
    )


def worth(question: MultisetQuestion, members: tuple[int, ...]) -> float:
    """Worth of a set by the rule of throughput, slowly."""
    label = np.repeat(np.arange(len(question.tasks)), np.diff(question.starts))
    counts = np.bincount(label, members, len(question.tasks)).astype(int)
    total = 0.0
    for position, number in enumerate(members):
        its = label[position]
        others = counts - (np.arange(len(counts)) == its)
        rate = float(np.prod(question.pairs[its] ** others)) if number else 1.0
        for (*row, whose), seen in zip(question.observed, question.rates, strict=True):
            if whose == its and row == counts.tolist():
                rate = seen
        total += number * (question.value[position] - question.charge[position] * (1 - rate))
    return total


@drawn(150)
@given(questions())
def test_no_set_is_worth_more_than_the_bound_and_the_best_are_found(question):
    best: dict[bytes, float] = {}
    label = np.repeat(np.arange(len(question.tasks)), np.diff(question.starts))
    for members in product(*(range(most + 1) for most in question.most)):
        if any(members) and (np.array(members) @ question.need <= question.capacity).all():
            multiset = np.bincount(label, members, len(question.tasks)).tobytes()
            best[multiset] = max(best.get(multiset, 0.0), worth(question, members))
    answer = multisets_reference.search(question)
    most = max([question.limit, *best.values()])
    assert answer.bound >= most - 1e-9
    assert answer.nodes <= question.nodes
    for reached, members in answer.sets:
        assert reached == pytest.approx(worth(question, tuple(members)))
        assert (np.array(members) @ question.need <= question.capacity).all()
        assert (np.array(members) <= question.most).all()
    if question.nodes == UNLIMITED:
        assert answer.bound == pytest.approx(most)
        expected = sorted(each for each in best.values() if each > question.limit + 1e-9)
        found = sorted(reached for reached, _ in answer.sets)
        kept = multisets_reference.KEPT
        assert found[-kept:] == pytest.approx(expected[-kept:], abs=1e-8)


@drawn(200)
@given(questions(), st.data())
def test_the_compiled_search_answers_what_the_reference_answers(question, data):
    compiled = library()
    assert compiled is not None
    answer = multisets_reference.search(question)
    assert compiled_search(compiled, question) == answer
    # Wherever the limit cuts it off.
    fewer = replace(question, nodes=data.draw(st.integers(0, answer.nodes)))
    assert compiled_search(compiled, fewer) == multisets_reference.search(fewer)


def test_more_sets_than_are_kept_leave_the_best() -> None:
    """Twelve workloads that do not slow each other down, with two tasks to a machine."""
    number = 12
    value = np.linspace(1.0, 2.0, number)
    need = np.tile(np.array([1, 0, 0, 0]), (number, 1))
    question = MultisetQuestion(
        value=value,
        charge=np.ones(number),
        fraction=need / 2,
        need=need,
        most=np.full(number, 2),
        starts=np.arange(number + 1),
        pairs=np.ones((number, number)),
        directions=np.array([[1.0, 0.0, 0.0, 0.0]]),
        shares=np.full((1, number), 0.5),
        observed=np.zeros((0, number + 1), dtype=np.int64),
        rates=np.zeros(0),
        capacity=np.array([2, 0, 0, 0]),
        least=need,
        tasks=np.full(number, 2),
        nodes=UNLIMITED,
        limit=0.5,
        whole=4.0,
    )
    pairs = [value[a] + value[b] for a in range(number) for b in range(a, number)]
    best = sorted([*value, *pairs])[-multisets_reference.KEPT :]
    compiled = library()
    assert compiled is not None
    answer = compiled_search(compiled, question)
    assert sorted(reached for reached, _ in answer.sets) == pytest.approx(best)
    assert answer == multisets_reference.search(question)
