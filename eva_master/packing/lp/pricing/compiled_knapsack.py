"""The search for the best set of tasks that do not slow each other down, compiled: `knapsack.c`."""

from __future__ import annotations

import ctypes
from ctypes import byref

import numpy as np

from eva_master.packing.compiled.library import KnapsackFound, KnapsackInput, library
from eva_master.packing.lp.columns import TaskSetKey
from eva_master.packing.lp.pricing import knapsack
from eva_master.packing.lp.pricing.knapsack import (
    COUNTED_AS,
    SETS_KEPT,
    KnapsackProblem,
    KnapsackResult,
)
from eva_master.packing.round_work import WorkKind

COST = WorkKind.SET * COUNTED_AS
"""Work of an item that is looked at."""


def search(question: KnapsackProblem) -> KnapsackResult:
    """Find sets of tasks that fit and are worth more than was asked for.

    Raises:
        MemoryError: There is too little memory.
    """
    opened = library()
    return knapsack.search(question) if opened is None else _compiled(opened, question)


def _compiled(opened: ctypes.CDLL, question: KnapsackProblem) -> KnapsackResult:
    need = np.ascontiguousarray(question.need)
    classes, parts = need.shape
    members = np.empty((SETS_KEPT, classes), dtype=np.int64)
    asked = KnapsackInput(
        capacity=question.capacity.ctypes.data,
        need=need.ctypes.data,
        counts=question.counts.ctypes.data,
        value=question.value.ctypes.data,
        classes=classes,
        parts=parts,
        nodes=question.nodes,
        items=-(-question.sets.left // COST),
        worth=question.worth,
    )
    answer = KnapsackFound(members=members.ctypes.data)
    if opened.knapsack(byref(asked), byref(answer)):
        raise MemoryError("The search for the best set of tasks had too little memory.")
    question.sets.spend(WorkKind.SET, COUNTED_AS * answer.items)
    kept = range(max(0, answer.found - SETS_KEPT), answer.found)
    task_sets = [_task_set(members[number % SETS_KEPT].tolist()) for number in kept]
    return KnapsackResult(task_sets, answer.bound, answer.nodes)


def _task_set(counts: list[int]) -> TaskSetKey:
    return tuple((number, count) for number, count in enumerate(counts) if count)
