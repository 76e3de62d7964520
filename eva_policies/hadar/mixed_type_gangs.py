"""Gangs whose tasks differ, each kind of them on a type of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.lp.least_time import LeastTime
from eva_wire.values.ids import Family


@dataclass(frozen=True, slots=True)
class Parting:
    """Types for the tasks of a gang of unlike tasks.

    Attributes:
        types: The type of each of its task runs; not all are the same.
        takes_ms: Duration of its remaining work there.
        cost: Cost of that work, in milliseconds of the bound.
    """

    types: tuple[Family, ...]
    takes_ms: float
    cost: float


def partings(one: Contender, worth: LeastTime) -> Iterator[Parting]:
    """Ways to run a gang of unlike tasks on several types, one for each possible pace.

    At each pace every kind of its tasks is on the cheapest type that keeps up. There is none for a
    gang that divides batches, which has no such pace, nor for one with tasks of unknown rates.

    Args:
        one: A contender.
        worth: Worth of each type's time.
    """
    needs_of = dict(one.apart)
    if one.job.spec.training.split_batch or not all(run.task in needs_of for run in one.runs):
        return
    for most_ms in sorted({ms for need in needs_of.values() for ms in need.alone_ms.values()}):
        chosen = {}
        for task, need in needs_of.items():
            costs = [
                (worth.cost(family, need.demand[family]), ms, family)
                for family, ms in need.alone_ms.items()
                if ms <= most_ms
            ]
            if costs:
                chosen[task] = min(costs)
        types = tuple(chosen[run.task][2] for run in one.runs if run.task in chosen)
        if len(types) == len(one.runs) and len(set(types)) > 1:
            takes_ms = max(ms for _, ms, _ in chosen.values())
            yield Parting(types, takes_ms, takes_ms * sum(cost for cost, _, _ in chosen.values()))
