"""Filling room on instances that stay: it is paid for already."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np

from eva_master.model.ids import InstanceId
from eva_master.packing.colocation import Ints
from eva_master.packing.filling import Filling
from eva_master.packing.problem import Contents, Problem


def fill_free(
    problem: Problem, staying: Mapping[InstanceId, Contents], counts: Ints
) -> tuple[Mapping[InstanceId, Contents], Ints]:
    """Offer the room on staying instances to tasks.

    The task and instance with the largest gain in TNRP come first, equal gains by instance id. No
    task joins an instance whose TNRP it would lower, so one that pays its price goes on paying.

    Args:
        problem: The classes.
        staying: What stays on each instance.
        counts: Tasks that need a place, per class.

    Returns:
        What joins each instance, and the tasks that are left, per class.
    """
    left = counts.copy()
    candidates = np.flatnonzero(left > 0)
    if not candidates.size:
        return {}, left
    fillings: dict[InstanceId, Filling] = {}
    queue: list[tuple[int, InstanceId, int]] = []

    def enqueue(instance: InstanceId) -> None:
        choice = fillings[instance].best(left)
        if choice is not None:
            heapq.heappush(queue, (-choice[1], instance, choice[0]))

    for instance, residents in sorted(staying.items()):
        machine = problem.instances[instance].offering.type
        fillings[instance] = Filling(problem, problem.worth, machine, candidates, residents)
        enqueue(instance)
    while queue:
        loss, instance, number = heapq.heappop(queue)
        if left[number]:
            fillings[instance].add(number, -loss)
            left[number] -= 1
        # The instance has changed, or its choice is used up: either way it must choose again.
        enqueue(instance)
    return {
        instance: filling.added for instance, filling in fillings.items() if filling.added
    }, left
