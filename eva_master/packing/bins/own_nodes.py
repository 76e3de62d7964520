"""The operator's own nodes as a pool, and places there, or on new instances for who fits none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eva_master.model.catalog import Purchase
from eva_master.model.ids import InstanceId, JobId
from eva_master.model.job import JobKind
from eva_master.model.planning.snapshot import RunView, Snapshot
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
        snapshot: The cluster.

    Attributes:
        views: Those instances that are the operator's own.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        there = snapshot.instances
        self.views = tuple(it for it in there if it.offering.purchase is Purchase.OWNED)
        self._known: dict[tuple[int, ...], bool] = {}
        self._members: dict[JobId, list[RunView]] = {}
        """Of gangs of several: their task runs that have a place."""
        gangs = {it.id for it in snapshot.jobs if it.kind is JobKind.GANG and len(it.runs) > 1}
        for run in snapshot.runs if gangs else ():
            if run.job in gangs and run.instance is not None:
                self._members.setdefault(run.job, []).append(run)

    def pool(self, reason: str) -> Pool:
        """All of them as a pool."""
        return Pool(NODES, tuple(view.id for view in self.views), reason)

    def hold(self, runs: Sequence[RunView]) -> bool:
        """Whether they would hold all of some task runs at once if nobody else were there.

        Members of the same gang that have a place are: they will not leave it before the others
        have one.

        Args:
            runs: Of one job.
        """
        members = self._members.get(runs[0].job, ()) if runs else ()
        if members:
            asked = {run.id for run in runs}
            return self._hold(runs, [it for it in members if it.id not in asked])
        needs = sameness(*[run.task for run in runs])
        known = self._known.get(needs)
        if known is None:
            known = self._known[needs] = self._hold(runs)
        return known

    def _taken(self, runs: Iterable[RunView]) -> dict[InstanceId, Resources]:
        """What task runs take of the nodes that they are on."""
        taken: dict[InstanceId, Resources] = {}
        places = {view.id: view.offering.type.family for view in self.views}
        for run in runs:
            if run.instance in places:
                held = run.task.demand_on(places[run.instance]) or NOTHING
                taken[run.instance] = taken.get(run.instance, NOTHING) + held
        return taken

    def _hold(self, runs: Sequence[RunView], beside: Sequence[RunView] = ()) -> bool:
        taken = self._taken(beside) if beside else {}
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
