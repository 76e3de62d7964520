"""The best set of tasks for one machine when they slow each other down.

How much a task loses depends on the workloads beside it, not on their sizes. So the search is over
multisets of workloads: once the multiset is settled, what a task of each class is
worth in it is a plain number, and choosing the sizes is a knapsack problem with so many tasks of
each workload.

Multisets are gone through depth first. With prices for the machine's GPUs, CPU time and memory, a
multiset's tasks and whoever may still join are worth at most what the machine costs at these
prices, if nobody is a bargain; so most multisets are left out together with all that include them.
Better prices for each of the others, found by the subgradient method, leave few, of which the best
sets are found by branch and bound. The search is compiled where it can be; `multisets_reference`
tells it step by step.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import fields
from typing import Any

import numpy as np

from eva_master.packing.compiled.library import MultisetsFound, MultisetsInput, library
from eva_master.packing.interference.throughput import Ints, ThroughputModel
from eva_master.packing.lp.columns import TaskSetKey
from eva_master.packing.lp.pricing.knapsack import (
    Floats,
    Items,
    KnapsackProblem,
    KnapsackResult,
    dual_prices,
    items,
)
from eva_master.packing.lp.pricing.multisets_reference import (
    DEEPEST,
    KEPT,
    MultisetAnswer,
    MultisetQuestion,
    search,
)
from eva_master.packing.round_work import WorkKind
from eva_master.packing.valuation.vectors import WIDTH
from eva_wire.values.ids import MILLION

_NUMERICAL_ZERO = 1e-12
_PRICED_FOR_NEIGHBOURS = 3
"""The machine's prices are tried as they would be if everybody had 0, 1, ... neighbours."""


class MultisetSearch:
    """Looks for sets of tasks on one kind of machine.

    Args:
        throughput: How fast the tasks of a set run.
        workloads: Of each class.
        charges: Of each class: the value of a standalone throughput, see `TaskClass.charge`.
    """

    def __init__(self, throughput: ThroughputModel, workloads: Ints, charges: Floats) -> None:
        self._pairs = throughput.fractions
        self._larger_sets = throughput.larger_sets
        self.workloads = workloads
        self.charges = charges

    def run(self, question: KnapsackProblem) -> KnapsackResult:
        """Find sets of tasks that fit and are worth more than was asked for."""
        value, counts = question.value, question.counts
        # Tasks that ask for nothing are left out of the search. They may be on board in any case.
        nothing = (question.need == 0).all(axis=1) & (value > 0) & (counts > 0)
        extra = float((value[nothing] * counts[nothing]).sum())
        floor = np.where((value > 0) & ~nothing, value, 0.0)
        # One class replaces another only if it is of the same workload.
        traits = np.stack([self.workloads, -self.workloads, self.charges, -value], axis=1)
        chosen = items(question, floor, traits)
        worth = question.worth - extra
        if chosen is None or chosen.whole <= worth:
            question.sets.spend(WorkKind.CHOICE)
            return KnapsackResult([], extra + (0.0 if chosen is None else chosen.whole), 1)
        order = np.argsort(self.workloads[chosen.classes], kind="stable")
        classes = chosen.classes[order]
        asked = self._question(question, chosen, order, worth)
        compiled = library()
        answer = search(asked) if compiled is None else compiled_search(compiled, asked)
        question.sets.spend(WorkKind.CHOICE, answer.nodes)
        # On each of them there is room for the tasks that ask for nothing.
        sets = sorted(
            (reached, _task_set(classes, members))
            for reached, members in answer.sets
            if reached > question.worth
        )
        return KnapsackResult([each for _, each in sets], answer.bound + extra, answer.nodes)

    def _question(
        self, question: KnapsackProblem, chosen: Items, order: Ints, worth: float
    ) -> MultisetQuestion:
        """The search among the chosen classes, in this order."""
        classes, need, most = chosen.classes[order], chosen.need[order], chosen.most[order]
        value, charge = question.value[classes], self.charges[classes]
        workload = self.workloads[classes]
        starts = np.flatnonzero(np.diff(workload, prepend=-1))
        present = workload[starts]
        fraction = need / np.maximum(question.capacity, 1)
        directions = _directions(value, charge, self._pairs.max(axis=1)[workload], fraction)
        shares = np.maximum(fraction @ directions.T, _NUMERICAL_ZERO)
        observed, rates = self._observed(present)
        return MultisetQuestion(
            value=value,
            charge=charge,
            fraction=_wide(fraction),
            need=_wide(need),
            most=most,
            starts=np.append(starts, len(classes)),
            pairs=np.ascontiguousarray(self._pairs[np.ix_(present, present)]),
            directions=_wide(directions),
            shares=np.ascontiguousarray(shares.T),
            observed=observed,
            rates=rates,
            capacity=_wide(question.capacity),
            least=_wide(np.minimum.reduceat(need, starts, axis=0)),
            tasks=np.add.reduceat(most, starts),
            nodes=min(question.nodes, question.sets.affords(WorkKind.CHOICE)),
            limit=worth,
            whole=chosen.whole,
        )

    def _observed(self, present: Ints) -> tuple[Ints, Floats]:
        """The larger sets that were observed of these workloads alone."""
        label = {workload: number for number, workload in enumerate(present.tolist())}
        rows, rates = list[list[int]](), list[float]()
        for workload, others, ppm in self._larger_sets:
            if workload in label and all(other in label for other, _ in others):
                row = [0] * len(label)
                for other, count in (*others, (workload, 1)):
                    row[label[other]] += count
                rows.append([*row, label[workload]])
                rates.append(ppm / MILLION)
        return np.array(rows, dtype=np.int64).reshape(-1, len(label) + 1), np.array(rates)


def compiled_search(compiled: ctypes.CDLL, question: MultisetQuestion) -> MultisetAnswer:
    """The answer of `multisets_reference.search`, by the compiled search."""
    classes, labels = len(question.value), len(question.tasks)
    rates = np.empty((2, DEEPEST + 2, labels))
    worth, count = np.empty((2, classes)), np.empty(labels, dtype=np.int64)
    values, members = np.empty(KEPT), np.empty((KEPT, classes), dtype=np.int64)
    arrays = {each.name: getattr(question, each.name) for each in fields(question)}
    scratch = {"joining": rates[0], "present": rates[1], "worth": worth[0], "above": worth[1]}
    pointers = {
        name: array.ctypes.data
        for name, array in {**arrays, **scratch, "count": count}.items()
        if isinstance(array, np.ndarray)
    }
    asked = MultisetsInput(
        **pointers,
        classes=classes,
        labels=labels,
        turns=len(question.directions),
        sets=len(question.rates),
        nodes=question.nodes,
        limit=question.limit,
        whole=question.whole,
    )
    output = MultisetsFound(values=values.ctypes.data, members=members.ctypes.data)
    compiled.multisets(byref(asked), byref(output))
    pairs = zip(values.tolist(), members.tolist(), strict=True)
    return MultisetAnswer(output.bound, output.nodes, list(pairs)[: output.found])


def _directions(value: Floats, charge: Floats, kindest: Floats, fraction: Floats) -> Floats:
    """Prices of the machine's parts, up to a factor, by the number of neighbours."""
    prices_by_count = []
    for neighbours in range(_PRICED_FOR_NEIGHBOURS):
        worth = value - charge * (1.0 - kindest**neighbours)
        some = worth > 0
        if some.any():
            prices_by_count.append(dual_prices(fraction[some], worth[some]))
    directions: Floats = np.array(prices_by_count)
    directions /= directions.sum(axis=1, keepdims=True)
    return directions


def _wide(rows: Any) -> Any:
    """Rows with a column for each part of a machine."""
    missing = WIDTH - rows.shape[-1]
    return np.ascontiguousarray(np.pad(rows, [*[(0, 0)] * (rows.ndim - 1), (0, missing)]))


def _task_set(classes: Ints, members: list[int]) -> TaskSetKey:
    return tuple(sorted((int(classes[at]), count) for at, count in enumerate(members) if count))
