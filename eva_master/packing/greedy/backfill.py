"""Backfill: offers the free room of instances that stay, since it is paid for already."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from operator import le, sub

import numpy as np

from eva_master.packing.greedy.instance_fill import InstanceFill
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.vectors import vector
from eva_wire.values.ids import InstanceId, OfferingId


def backfill(
    problem: Problem, staying: Mapping[InstanceId, TaskSet], counts: Ints
) -> tuple[Mapping[InstanceId, TaskSet], Ints]:
    """Offer the room on staying instances to tasks, before any is bought (Eva, section 4.5).

    The task and instance with the largest gain in TNRP come first, equal gains by instance id. No
    task joins an instance whose TNRP it would lower, so an instance that pays its price still does.

    Args:
        problem: The packing problem, with its classes.
        staying: The tasks that stay on each instance.
        counts: Tasks that need a place, per class.

    Returns:
        The tasks that join each instance, and the remaining tasks, per class.
    """
    remaining = counts.copy()
    candidates = np.flatnonzero(remaining > 0)
    if not candidates.size:
        return {}, remaining
    alike = _AlikeInstances(problem, candidates)
    groups: dict[InstanceId, _ChoiceGroup | None] = {}
    fills: dict[InstanceId, InstanceFill] = {}
    queue: list[tuple[int, InstanceId, int]] = []

    def enqueue(instance: InstanceId) -> None:
        chooser = fills.get(instance) or groups[instance]
        choice = chooser.best(remaining) if chooser else None
        if choice is not None:
            heapq.heappush(queue, (-choice[1], instance, choice[0]))

    for instance, residents in sorted(staying.items()):
        groups[instance] = alike.group(instance, residents)
        enqueue(instance)
    while queue:
        loss, instance, number = heapq.heappop(queue)
        if remaining[number]:
            if instance not in fills:
                fills[instance] = alike.own(instance, staying[instance])
            fills[instance].add(number, -loss)
            remaining[number] -= 1
        # The instance has changed, or its choice is used up: either way it must choose again.
        enqueue(instance)
    return {instance: fill.added for instance, fill in fills.items()}, remaining


class _ChoiceGroup:
    """Instances that choose alike; their choice is the best one until it is used up."""

    def __init__(self, fill: InstanceFill) -> None:
        self._filling = fill
        self._choice: tuple[int, int] | None = None
        self._over = False

    def best(self, left: Ints) -> tuple[int, int] | None:
        """Find the task that should join next, see `InstanceFill.best`."""
        if not self._over and (self._choice is None or not left[self._choice[0]]):
            self._choice = self._filling.best(left)
            self._over = self._choice is None
        return self._choice


class _AlikeInstances:
    """Instances of one offering with the same tasks choose alike, until one of them is joined."""

    def __init__(self, problem: Problem, candidates: Ints) -> None:
        self._problem = problem
        self._candidates = candidates
        self._groups: dict[tuple[OfferingId, frozenset[tuple[int, int]]], _ChoiceGroup | None] = {}
        self._least = {
            family: tuple(rows[candidates].min(axis=0).tolist())
            for family, rows in problem.need.items()
        }

    def group(self, instance: InstanceId, residents: TaskSet) -> _ChoiceGroup | None:
        """The group of instances like this one, `None` if it has room for no candidate."""
        offering = self._problem.instances[instance].offering
        key = self._problem.sold_as[instance], frozenset(residents.items())
        if key not in self._groups:
            family = offering.type.family
            total = self._problem.total(family, residents)
            room = map(sub, vector(offering.type.capacity), total)
            fits = all(map(le, self._least[family], room))
            self._groups[key] = _ChoiceGroup(self.own(instance, residents)) if fits else None
        return self._groups[key]

    def own(self, instance: InstanceId, residents: TaskSet) -> InstanceFill:
        """The fill of this instance alone."""
        machine = self._problem.instances[instance].offering.type
        values = self._problem.values
        return InstanceFill(self._problem, values, machine, self._candidates, residents)
