"""The operator's own nodes as a pool, and places there, or on new instances for who fits none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eva_master.model.catalog import Purchase
from eva_master.model.ids import InstanceId
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.model.planning.standing import Pool
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import sameness
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.placement_groups import PlacementGroup

NODES = "nodes"
"""The pool's name."""


class OwnNodes:
    """Those of a snapshot.

    Args:
        instances: All of the snapshot's.

    Attributes:
        views: Those that are the operator's own.
    """

    def __init__(self, instances: Iterable[InstanceView]) -> None:
        self.views = tuple(it for it in instances if it.offering.purchase is Purchase.OWNED)
        self._known: dict[tuple[int, ...], bool] = {}

    def pool(self, reason: str) -> Pool:
        """All of them as a pool."""
        return Pool(NODES, tuple(view.id for view in self.views), reason)

    def hold(self, runs: Sequence[RunView]) -> bool:
        """Whether they would hold all of some task runs at once if nobody else were there."""
        needs = sameness(*[run.task for run in runs])
        known = self._known.get(needs)
        if known is None:
            known = self._known[needs] = self._hold(runs)
        return known

    def _hold(self, runs: Sequence[RunView]) -> bool:
        taken: dict[InstanceId, Resources] = {}
        for run in runs:
            for view in self.views:
                need = run.task.demand_on(view.offering.type.family)
                if need is None:
                    continue
                used = taken.get(view.id, NOTHING) + need
                if used.fits(view.offering.type.capacity):
                    taken[view.id] = used
                    break
            else:
                return False
        return True


class FirstRoom:
    """Gives task runs the first instance with room, or the cheapest new one if no nodes hold it."""

    def __init__(self, instances: OpenInstances, nodes: OwnNodes) -> None:
        self._instances = instances
        self._nodes = nodes

    def put(self, groups: Sequence[PlacementGroup]) -> None:
        """Place as many as there is room for, or can be bought for."""
        instances = self._instances
        for group in groups:
            for run in group.runs:
                shape = instances.priced(run.id)
                rows = np.flatnonzero(instances.fitting(shape)).tolist()
                row = next((it for it in rows if self._is_used(it)), None)
                if row is None and not self._nodes.hold(group.runs):
                    offering = instances.cheapest(shape)
                    row = None if offering is None else instances.open(offering)
                if row is not None:
                    instances.put(run.id, row)

    def _is_used(self, row: int) -> bool:
        """Whether an instance stays; the others go, since nobody is on them."""
        owned = self._instances.offerings[row].purchase is Purchase.OWNED
        return owned or bool(self._instances.residents[row])
