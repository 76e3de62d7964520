"""Answers of searches for task sets, kept from round to round."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eva_master.packing.lp.pricing.knapsack import KnapsackProblem, KnapsackResult
from eva_master.packing.lp.pricing.workload_multisets import MultisetSearch
from eva_master.packing.round_work import WorkKind

_ANSWERS_KEPT = 1_024


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of all searches with one throughput model.

    In a large cluster with few kinds of tasks the bound of each round asks nearly the same as that
    of the round before. Only how many tasks of a class a machine holds at most is part of a
    question, not how many there are. An answer counts as the work that it took at first, so that
    a plan does not depend on what is remembered.
    """

    _by_question: dict[object, KnapsackResult] = field(default_factory=dict)

    def run(self, search: MultisetSearch, question: KnapsackProblem) -> KnapsackResult:
        """The result of a search, which takes place unless its answer is known."""
        key = _key(search, question)
        answer, affordable = self._by_question.get(key), question.sets.affords(WorkKind.CHOICE)
        if answer is not None and affordable >= answer.nodes:
            question.sets.spend(WorkKind.CHOICE, answer.nodes)
            return answer
        result = search.run(question)
        if affordable >= question.nodes or affordable > result.nodes:
            if len(self._by_question) >= _ANSWERS_KEPT:
                self._by_question.clear()
            self._by_question[key] = result
        return result


def _key(search: MultisetSearch, question: KnapsackProblem) -> object:
    most = np.minimum(question.most(), question.counts)
    arrays = question.capacity, question.need, question.value, most
    return (
        *(array.tobytes() for array in (*arrays, search.workloads, search.charges)),
        question.need.shape,
        question.worth,
        question.nodes,
    )
