"""The rounds of Synergy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eva_master.model.ids import MILLION, RunId
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.placement_groups import Unit, place, waiting
from eva_master.packing.bins.plan_builder import outcome
from eva_master.packing.bins.task_set_value import Tnrp
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import unprofiled
from eva_master.policies.synergy.config import Config
from eva_master.policies.synergy.rooms import ValuedRooms

NAME = "synergy"
_ROUNDING = 1 + 1e-9
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
        units = waiting(snapshot)
        if not (units or self._config.explained):
            return Plan(), memory
        rooms = ValuedRooms(snapshot, self._cache.snapshot_shapes(snapshot))
        model = self._cache.exact_throughput(
            snapshot.throughput, self._config.default_throughput_ppm
        )
        value = Tnrp(rooms, model)
        alone = unprofiled(snapshot, self._cache.measured_rates(snapshot.standalone))

        def placing(units: Sequence[Unit]) -> None:
            for unit in units:
                for run in unit.runs:
                    _put(rooms, value, alone, run.id)

        stuck = place(rooms, units, placing)
        tenants = value.tenants if self._config.explained else None
        return outcome(snapshot, rooms, stuck, tenants, profiled=alone), memory


def _put(rooms: ValuedRooms, value: Tnrp, alone: frozenset[RunId], run: RunId) -> None:
    """Find a task run a place, if there is any."""
    row = None if run in alone else _best_fit(rooms, value, alone, run)
    if row is None:
        offering = rooms.cheapest(rooms.priced(run))
        if offering is None:
            return
        row = rooms.open(offering)
    rooms.put(run, row)


def _best_fit(rooms: ValuedRooms, value: Tnrp, alone: frozenset[RunId], run: RunId) -> int | None:
    """The instance with the largest ratio of TNRP to its price, `None` if none is worth that.

    Of equals it is the one whose free resources match the demand best, then the first.

    Args:
        rooms: The instances.
        value: What tasks are worth together.
        alone: Task runs that nobody is to join.
        run: For which one is looked for.
    """
    priced = rooms.priced(run)
    rows = np.flatnonzero(rooms.fitting(priced) & rooms.occupied())
    bounds, aligned = rooms.at_most(priced, rows), rooms.alignment(priced, rows)
    best, found = (0.0, 0.0), None
    for index in np.lexsort((rows, -bounds)).tolist():
        if bounds[index] * _ROUNDING < best[0]:
            break
        row = int(rows[index])
        there = rooms.residents[row]
        if alone and not alone.isdisjoint(there):
            continue
        worth, price = value.of((*there, run), rooms.family(row)), rooms.offerings[row].price
        fit = worth / (max(1, price) * MILLION), float(aligned[index])
        if worth >= price * MILLION and (found is None or fit > best):
            best, found = fit, row
    return found


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str = NAME
    config: type[Any] = Config

    def build(self, config: Any) -> Synergy:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return Synergy(config)


POLICY = _Kind()
