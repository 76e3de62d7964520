"""The rounds of the policy Synergy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.ids import MILLION, RunId
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.placement_groups import PlacementGroup, place, waiting
from eva_master.packing.bins.plan_builder import build_plan
from eva_master.packing.bins.task_set_value import Tnrp
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.profiling import unprofiled
from eva_master.policies.synergy.config import Config
from eva_master.policies.synergy.valued_instances import ValuedInstances

NAME = "synergy"
_BOUND_MARGIN = 1 + 1e-9
"""A bound that is made of rounded numbers may be too low by less than this."""


class Synergy:
    """Best fit for a cluster of any size; no task is ever moved.

    A waiting task joins the instance that is then worth most for its price, interference counted.
    If none is worth its price it gets the cheapest instance that holds it.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Give every waiting task a place."""
        groups = waiting(snapshot)
        if not (groups or self._config.explained):
            return Plan(), memory
        instances = ValuedInstances(snapshot, self._cache.snapshot_shapes(snapshot))
        model = self._cache.exact_throughput(
            snapshot.throughput, self._config.default_throughput_ppm
        )
        value = Tnrp(instances, model)
        alone = unprofiled(snapshot, self._cache.measured_rates(snapshot.standalone))

        def placing(groups: Sequence[PlacementGroup]) -> None:
            for group in groups:
                for run in group.runs:
                    _put(instances, value, alone, run.id)

        unplaced = place(instances, groups, placing)
        occupants = value.occupants if self._config.explained else None
        return build_plan(snapshot, instances, unplaced, occupants, profiled=alone), memory


def _put(instances: ValuedInstances, value: Tnrp, alone: frozenset[RunId], run: RunId) -> None:
    """Find a task run a place, if there is any."""
    row = None if run in alone else _best_fit(instances, value, alone, run)
    if row is None:
        offering = instances.cheapest(instances.priced(run))
        if offering is None:
            return
        row = instances.open(offering)
    instances.put(run, row)


def _best_fit(
    instances: ValuedInstances, value: Tnrp, alone: frozenset[RunId], run: RunId
) -> int | None:
    """The instance with the largest ratio of TNRP to its price, `None` if none is worth that.

    Of equals it is the one whose free resources match the demand best, then the first.

    Args:
        instances: The instances.
        value: What tasks are worth together.
        alone: Task runs that nobody is to join.
        run: For which one is looked for.
    """
    priced = instances.priced(run)
    rows = np.flatnonzero(instances.fitting(priced) & instances.occupied())
    bounds, aligned = instances.at_most(priced, rows), instances.alignment(priced, rows)
    best, found = (0.0, 0.0), None
    for index in np.lexsort((rows, -bounds)).tolist():
        if bounds[index] * _BOUND_MARGIN < best[0]:
            break
        row = int(rows[index])
        there = instances.residents[row]
        if alone and not alone.isdisjoint(there):
            continue
        worth, price = (
            value.of((*there, run), instances.family(row)),
            instances.offerings[row].price,
        )
        fit = worth / (max(1, price) * MILLION), float(aligned[index])
        if worth >= price * MILLION and (found is None or fit > best):
            best, found = fit, row
    return found


@dataclass(frozen=True, slots=True)
class _PolicySpec:
    name: str = NAME
    config: type[Any] = Config
    reads = reads_none

    def build(self, config: Any) -> Synergy:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return Synergy(config)


POLICY = _PolicySpec()
