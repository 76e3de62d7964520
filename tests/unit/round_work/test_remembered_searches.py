"""Answers of searches for task sets that are kept from round to round."""

from __future__ import annotations

import random
from unittest.mock import patch

import numpy as np
import pytest

from eva_master.packing.lp.pricing.knapsack import KnapsackProblem
from eva_master.packing.lp.pricing.remembered import Answers
from eva_master.packing.lp.pricing.workload_multisets import MultisetSearch
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.round_work import WorkBudget, WorkKind
from eva_wire.values.ids import MILLION
from tests.fakes.snapshots import Cluster, offer, table, task

NAMES = "abcd"


def search_among(choose: random.Random) -> tuple[Problem, MultisetSearch]:
    """A search among tasks of four workloads that slow each other down."""
    cluster = Cluster(offer("box", (0, 16, 64), 1.0))
    for number in range(6):
        cluster.job(str(number), task(choose.choice(NAMES), any=(0, choose.randint(1, 5), 4)))
    pairs = [(name, (other,)) for name in NAMES for other in NAMES]
    cluster.throughput = table({pair: choose.uniform(0.7, 1.0) for pair in pairs})
    problem = Problem(cluster.snapshot(), Valuation())
    charges = np.array([task_class.charge / MILLION for task_class in problem.classes])
    return problem, MultisetSearch(problem.throughput, problem.workloads, charges)


def question(
    problem: Problem, counts: list[int], value: list[float], budget: WorkBudget
) -> KnapsackProblem:
    need = next(iter(problem.need.values()))[:, : problem.width]
    capacity = np.array([0, 16_000, 64 * 1024])
    return KnapsackProblem(capacity, need, np.array(value), np.array(counts), 0.2, 2_000, budget)


@pytest.mark.parametrize("seed", range(12))
def test_answers_and_what_they_count_are_those_of_a_search(seed: int) -> None:
    choose = random.Random(seed)
    problem, search = search_among(choose)
    values = [[choose.uniform(0.02, 0.3) for _ in problem.classes] for _ in range(2)]
    answers = Answers()
    for _ in range(25):
        counts, value = [choose.choice((0, 2, 30, 40)) for _ in problem.classes], values[0]
        if choose.random() < 0.2:
            value = values[1]
        sets = choose.choice((3, 40, 400, 4_000, 1_000_000))
        kept, anew = (WorkBudget(sets * WorkKind.CHOICE) for _ in range(2))
        result = answers.run(search, question(problem, counts, value, kept))
        assert result == search.run(question(problem, counts, value, anew))
        assert (kept.left, kept.spent) == (anew.left, anew.spent)


def test_more_tasks_than_a_machine_holds_are_no_other_question() -> None:
    problem, search = search_among(random.Random(1))
    value = [0.5] * len(problem.classes)
    answers = Answers()
    first = answers.run(search, question(problem, [30] * len(value), value, WorkBudget()))
    with patch.object(MultisetSearch, "run", side_effect=AssertionError("it is searched again")):
        again = answers.run(search, question(problem, [31] * len(value), value, WorkBudget()))
    assert again == first
    assert first.task_sets
