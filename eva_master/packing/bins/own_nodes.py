"""The operator's own nodes as a pool, and places there, or on new instances for who fits none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eva_master.model.catalog import Purchase
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.planning.standing import Pool
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import sameness
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.placement_groups import PlacementGroup
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId

NODES = "nodes"
"""The pool's name."""


class OwnNodes:
    """The operator's own nodes in a snapshot.

    Args:
        snapshot: The cluster.

    Attributes:
        views: The instances that are owned nodes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        instances = snapshot.instances
        self.views = tuple([view for view in instances if view.offering.purchase is Purchase.OWNED])
        self._known: dict[tuple[int, ...], bool] = {}
        self._members: dict[JobId, list[RunView]] = {}
        """For gangs of several tasks: their task runs that have a place."""
        gangs = {
            job.id for job in snapshot.jobs if job.spec.kind is JobKind.GANG and len(job.runs) > 1
        }
        for run in snapshot.runs if gangs else ():
            if run.job in gangs and run.instance is not None:
                self._members.setdefault(run.job, []).append(run)

    def pool(self, reason: str) -> Pool:
        """All of them as a pool."""
        return Pool(NODES, tuple([view.id for view in self.views]), reason)

    def hold(self, runs: Sequence[RunView]) -> bool:
        """Whether the nodes, otherwise empty, would hold all of some task runs at once.

        Members of the same gang that have a place count too: they keep it until the others have
        one.

        Args:
            runs: Task runs of one job.
        """
        members = self._members.get(runs[0].job, ()) if runs else ()
        if members:
            asked = {run.id for run in runs}
            return self._hold(runs, [member for member in members if member.id not in asked])
        needs = sameness(*[run.task for run in runs])
        holds = self._known.get(needs)
        if holds is None:
            holds = self._known[needs] = self._hold(runs)
        return holds

    def divided(self, runs: Sequence[RunView]) -> tuple[list[RunView], list[RunView]]:
        """Task runs that a node would hold if it were empty, and the others.

        Args:
            runs: Task runs of one job; those with the same task are looked at once.
        """
        kinds = {sameness(run.task): run for run in runs}
        fitting = {kind for kind, run in kinds.items() if self.hold((run,))}
        if len(fitting) == len(kinds):
            return [*runs], []
        return (
            [run for run in runs if sameness(run.task) in fitting],
            [run for run in runs if sameness(run.task) not in fitting],
        )

    def _taken(self, runs: Iterable[RunView]) -> dict[InstanceId, Resources]:
        """Room that task runs take on their nodes, by node."""
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
        """Place as many groups as existing and purchasable instances hold."""
        instances = self._instances
        for group in groups:
            for run in group.runs:
                shape = instances.priced(run.id)
                rows = np.flatnonzero(instances.fitting(shape)).tolist()
                row = next((candidate for candidate in rows if self._is_used(candidate)), None)
                if row is None and not self._nodes.hold(group.runs):
                    offering = instances.cheapest(shape)
                    row = None if offering is None else instances.open(offering)
                if row is not None:
                    instances.put(run.id, row)

    def _is_used(self, row: int) -> bool:
        """Whether an instance stays; the others go, since nobody is on them."""
        owned = self._instances.offerings[row].purchase is Purchase.OWNED
        return owned or bool(self._instances.residents[row])
