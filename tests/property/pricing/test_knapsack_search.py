"""The search for task sets without interference, compiled and in Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eva_master.packing.compiled.library import library
from eva_master.packing.lp.pricing import compiled_knapsack, knapsack
from eva_master.packing.lp.pricing.knapsack import SETS_KEPT, KnapsackProblem
from eva_master.packing.round_work import WorkBudget
from tests.drawing import drawn

COST = compiled_knapsack.COST
"""Work of an item."""


@st.composite
def questions(draw: st.DrawFn) -> KnapsackProblem:
    """Up to twelve classes on a machine of three or four parts."""
    parts, classes = draw(st.integers(3, 4)), draw(st.integers(1, 12))
    choose = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    capacity = choose.integers(0, [5, 5_000, 5_000, 50], endpoint=True)[:parts]
    capacity[0] *= draw(st.booleans())
    # Up to a half, a whole machine, or one and a half.
    most = np.maximum(capacity, 1) * draw(st.integers(1, 3)) // 2
    need = choose.integers(0, most, (classes, parts), endpoint=True)
    need[choose.random(need.shape) < 0.3] = 0
    value = choose.integers(-1, 6, classes) * draw(st.sampled_from([1.0, 0.1]))
    value += choose.random(classes) * draw(st.booleans())
    # Alike in need, and in value too.
    if classes > 1 and draw(st.booleans()):
        need[0], value[0] = need[-1], value[-1]
    return KnapsackProblem(
        capacity=capacity,
        need=need,
        value=value,
        counts=choose.integers(0, draw(st.sampled_from([2, 60])), classes, endpoint=True),
        worth=draw(st.sampled_from([-1.0, 0.0, 2.5, 10.0])),
        nodes=draw(st.sampled_from([1, 3, 40, 5_000])),
    )


@drawn(400)
@given(questions(), st.one_of(st.none(), st.integers(0, 20 * COST)))
def test_the_compiled_search_answers_what_the_reference_answers(question, work):
    assert library() is not None
    answers, budgets = [], []
    for search in (knapsack.search, compiled_knapsack.search):
        budget = WorkBudget() if work is None else WorkBudget(work)
        answers.append(search(replace(question, sets=budget)))
        budgets.append((budget.left, budget.spent))
    assert answers[0] == answers[1]
    assert budgets[0] == budgets[1]


def test_more_sets_than_are_kept_leave_the_last_ones() -> None:
    """Each class adds a task to the set found before."""
    classes = SETS_KEPT + 30
    question = KnapsackProblem(
        capacity=np.array([0, classes, classes]),
        need=np.tile(np.array([0, 1, 1]), (classes, 1)),
        value=np.linspace(2.0, 1.0, classes),
        counts=np.ones(classes, dtype=np.int64),
        worth=0.5,
        nodes=10_000,
    )
    result = compiled_knapsack.search(question)
    assert result == knapsack.search(question)
    sizes = [len(task_set) for task_set in result.task_sets]
    assert sizes == list(range(classes - SETS_KEPT + 1, classes + 1))
