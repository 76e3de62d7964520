"""Columns of the configuration LP: what one instance could hold, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.packing.greedy.algorithm1 import PackedSet
from eva_master.packing.problem import Problem
from eva_wire.values.ids import MILLION

TaskSetKey = tuple[tuple[int, int], ...]
"""Tasks on one instance: (class, how many), by class, none zero."""


@dataclass(frozen=True, slots=True)
class Column:
    """One way to use one instance.

    Attributes:
        offering: Offering of the instance.
        task_set: Tasks on the instance.
        cost: Its price and the value of the throughput that its tasks lose to one another and to
            families on which they run slower, in millionths of micro-dollars per hour. The savings
            S are the worth of all tasks where they run fastest, less the cost of all columns.
    """

    offering: Offering
    task_set: TaskSetKey
    cost: int


def column(problem: Problem, offering: Offering, task_set: TaskSetKey) -> Column:
    """Price a task set on an offering."""
    lost = problem.lost(dict(task_set), offering.type.family)
    return Column(offering, task_set, offering.price * MILLION + lost)


def cost(problem: Problem, sets: list[PackedSet]) -> int:
    """Total cost of sets, throughput lost included; see `Column.cost`."""
    return sum(
        packed.times
        * (
            packed.offering.price * MILLION
            + problem.lost(packed.task_set, packed.offering.type.family)
        )
        for packed in sets
    )


def columns_of(problem: Problem, sets: list[PackedSet]) -> list[Column]:
    """The columns that sets are made of."""
    return [
        column(problem, packed.offering, tuple(sorted(packed.task_set.items()))) for packed in sets
    ]
