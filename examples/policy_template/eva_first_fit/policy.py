"""The rounds of first fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.model.option_types import Count
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.toolkit import (
    OpenInstances,
    PlacementGroup,
    PlannerCache,
    build_plan,
    open_instances,
    place,
    unprofiled,
    waiting,
    without_interference,
)
from eva_master.ports import Planned, PolicyKind
from eva_wire.values.ids import RunId

NAME = "first_fit"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings; every one has a default, and its type is what settings are checked by.

    Attributes:
        most_tasks: At most so many tasks share an instance.
        explained: Give reasons with every plan; they decide nothing.
    """

    most_tasks: Count = 4
    explained: bool = True


class FirstFit:
    """Places waiting tasks and never moves one.

    Plans depend on the snapshot and the memory alone. Values kept in the object may only make the
    next plan faster: after a restart they are gone.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Give every waiting task a place."""
        groups = waiting(snapshot)
        if not (groups or self._config.explained):
            return Plan(), memory
        instances = open_instances(snapshot, self._cache)
        alone = unprofiled(snapshot, self._cache)

        def placing(groups: Sequence[PlacementGroup]) -> None:
            for group in groups:
                for run in group.runs:
                    self._put(instances, alone, run.id)

        unplaced = place(instances, groups, placing)
        occupants = without_interference if self._config.explained else None
        return build_plan(snapshot, instances, unplaced, occupants, profiled=alone), memory

    def _put(self, instances: OpenInstances, alone: frozenset[RunId], run: RunId) -> None:
        """Find a task run a place; without one it is held."""
        shape = instances.priced(run)
        row = None if run in alone else self._first(instances, alone, run)
        if row is None:
            offering = instances.cheapest(shape)
            if offering is None:
                return
            row = instances.open(offering)
        instances.put(run, row)

    def _first(self, instances: OpenInstances, alone: frozenset[RunId], run: RunId) -> int | None:
        """The first instance with a task and room for another one."""
        for row in np.flatnonzero(instances.fitting(instances.priced(run))).tolist():
            there = instances.residents[row]
            if there and len(there) < self._config.most_tasks and alone.isdisjoint(there):
                return row
        return None


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=FirstFit,
    presets={"pairs": {"most_tasks": 2}},
)
"""The object of the entry point."""
