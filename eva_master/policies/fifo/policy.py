"""The rounds of the policy first in, first out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eva_master.model.catalog import Purchase
from eva_master.model.ids import InstanceId, JobId
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import sameness
from eva_master.packing.toolkit import (
    OpenInstances,
    PlacementGroup,
    PlannerCache,
    build_plan,
    open_instances,
    place,
    waiting,
    without_interference,
)

NAME = "fifo"
NODES = "nodes"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        explained: Give reasons with every plan; they decide nothing.
    """

    explained: bool = True


class Fifo:
    """First in, first out; of several priorities the highest first.

    The operator's own nodes are a pool, and whoever could run there stands in one line for their
    room. Gangs do not stand in lines: one that waits for room holds up all jobs behind it, since
    the line would else take each place that becomes free. For whoever fits no node the cheapest
    instances with room are bought.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """State the line; place who does not stand in it."""
        nodes = tuple(filter(_is_owned, snapshot.instances))
        home = _Home(nodes)
        queued: list[PlacementGroup] = []
        others: list[PlacementGroup] = []
        behind: list[PlacementGroup] = []
        held_up = False
        for group in waiting(snapshot):
            at_home = home.holds(group)
            if at_home and group.job.stands_in_line:
                (behind if held_up else queued).append(group)
            else:
                others.append(group)
                held_up = held_up or (at_home and not self._has_room(snapshot, others, home))
        plan = Plan()
        if others or behind or self._config.explained:
            plan = self._placed(snapshot, others, behind, home)
        if not nodes:
            return plan, memory
        members = tuple(view.id for view in nodes)
        pool = Pool(NODES, members, "the operator's own nodes, whose room is given by arrival")
        jobs = _jobs(queued)
        lines = (Line((NODES,), jobs, by_arrival=True),) if jobs else ()
        return replace(plan, pools=(pool,), lines=lines), memory

    def _has_room(self, snapshot: Snapshot, groups: Sequence[PlacementGroup], home: _Home) -> bool:
        """Whether all of some groups can be placed now."""
        instances = open_instances(snapshot, self._cache)
        return not place(instances, groups, _Placing(instances, home).put)

    def _placed(
        self,
        snapshot: Snapshot,
        groups: Sequence[PlacementGroup],
        behind: Sequence[PlacementGroup],
        home: _Home,
    ) -> Plan:
        instances = open_instances(snapshot, self._cache)
        unplaced = place(instances, groups, _Placing(instances, home).put)
        unplaced += place(instances, behind, lambda _: None)
        occupants = without_interference if self._config.explained else None
        return build_plan(snapshot, instances, unplaced, occupants)


class _Placing:
    """Gives task runs the first instance with room, or the cheapest new one if no nodes hold it."""

    def __init__(self, instances: OpenInstances, home: _Home) -> None:
        self._instances = instances
        self._home = home

    def put(self, groups: Sequence[PlacementGroup]) -> None:
        """Place as many as there is room for, or can be bought for."""
        instances = self._instances
        for group in groups:
            for run in group.runs:
                shape = instances.priced(run.id)
                rows = np.flatnonzero(instances.fitting(shape)).tolist()
                row = next((it for it in rows if self._is_used(it)), None)
                if row is None and not self._home.holds(group):
                    offering = instances.cheapest(shape)
                    row = None if offering is None else instances.open(offering)
                if row is not None:
                    instances.put(run.id, row)

    def _is_used(self, row: int) -> bool:
        """Whether an instance stays; the others go, since nobody is on them."""
        owned = self._instances.offerings[row].purchase is Purchase.OWNED
        return owned or bool(self._instances.residents[row])


class _Home:
    """What the nodes would hold if nobody were there."""

    def __init__(self, nodes: Sequence[InstanceView]) -> None:
        self._nodes = nodes
        self._known: dict[tuple[int, ...], bool] = {}

    def holds(self, group: PlacementGroup) -> bool:
        """Whether all task runs of a group would find room at once."""
        needs = sameness(*[run.task for run in group.runs])
        known = self._known.get(needs)
        if known is None:
            known = self._known[needs] = self._hold(group.runs)
        return known

    def _hold(self, runs: Sequence[RunView]) -> bool:
        taken: dict[InstanceId, Resources] = {}
        for run in runs:
            for view in self._nodes:
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


def _is_owned(view: InstanceView) -> bool:
    return view.offering.purchase is Purchase.OWNED


def _jobs(groups: Iterable[PlacementGroup]) -> tuple[JobId, ...]:
    return tuple(dict.fromkeys(group.job.id for group in groups))


@dataclass(frozen=True, slots=True)
class _PolicySpec:
    name: str = NAME
    config: type[Any] = Config

    def build(self, config: Any) -> Fifo:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return Fifo(config)


POLICY = _PolicySpec()
