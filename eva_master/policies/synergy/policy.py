"""The rounds of Synergy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eva_master.model.ids import MILLION, CopyId
from eva_master.model.plan import Plan, PolicyMemory
from eva_master.model.snapshot import Snapshot
from eva_master.packing.appraisal import Appraiser
from eva_master.packing.outcome import outcome
from eva_master.packing.problem import unprofiled
from eva_master.packing.rooms import Rooms
from eva_master.packing.tnrp import Learned, Tnrp
from eva_master.packing.units import Unit, place, waiting
from eva_master.policies.synergy.config import Config

NAME = "synergy"


class Synergy:
    """Best fit for a cluster of any size; no task is ever moved.

    A waiting task joins the instance that it fits best, among those that are worth their price
    with it, interference counted. If there is none it gets the cheapest instance that holds it.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._appraiser = Appraiser()
        self._learned = Learned(config.default_throughput_ppm)

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Give every waiting task a place."""
        units = waiting(snapshot)
        if not (units or self._config.explained):
            return Plan(), memory
        rooms = Rooms(snapshot, self._appraiser.appraisal(snapshot))
        value = Tnrp(rooms, self._learned.beside(snapshot.throughput))
        alone = unprofiled(snapshot)

        def placing(units: Sequence[Unit]) -> None:
            for unit in sorted(units, key=lambda unit: (-unit.job.priority, _size(rooms, unit))):
                for copy in unit.copies:
                    _put(rooms, value, alone, copy.id)

        stuck = place(rooms, units, placing)
        tenants = value.tenants if self._config.explained else None
        return outcome(snapshot, rooms, stuck, tenants), memory


def _size(rooms: Rooms, unit: Unit) -> tuple[int, ...]:
    """The largest come first: by GPUs, then CPU time, then memory, where they need the most."""
    sizes = (rooms.kind(copy.id) for copy in unit.copies)
    most = np.max([kind.largest for kind in sizes], axis=0)
    return tuple((-most).tolist())


def _put(rooms: Rooms, value: Tnrp, alone: frozenset[CopyId], copy: CopyId) -> None:
    """Find a copy a place, if there is any."""
    row = None if copy in alone else _best_fit(rooms, value, alone, copy)
    if row is None:
        offering = rooms.cheapest(rooms.kind(copy))
        if offering is None:
            return
        row = rooms.open(offering)
    rooms.put(copy, row)


def _best_fit(rooms: Rooms, value: Tnrp, alone: frozenset[CopyId], copy: CopyId) -> int | None:
    """The instance on which the least is left over, of those that are worth their price.

    What is left over counts by the least prices that its resources are on sale for.

    Args:
        rooms: The instances.
        value: What tasks are worth together.
        alone: Copies that nobody is to join.
        copy: For which one is looked for.
    """
    kind = rooms.kind(copy)
    rows = np.flatnonzero(rooms.fitting(kind) & rooms.occupied())
    left = (rooms.free()[rows] - rooms.needed(kind)[rows]) @ rooms.unit_price
    for row in rows[np.argsort(left, kind="stable")].tolist():
        there = rooms.residents[row]
        if alone and not alone.isdisjoint(there):
            continue
        worth = value.of((*there, copy), rooms.family(row))
        if worth >= rooms.offerings[row].price * MILLION:
            return int(row)
    return None


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str = NAME
    config: type[Any] = Config

    def build(self, config: Any) -> Synergy:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return Synergy(config)


POLICY = _Kind()
