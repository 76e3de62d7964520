"""The rounds of the policy first in, first out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.planning.standing import Line
from eva_master.packing.bins.placement_groups import grouped, waiting_runs
from eva_master.packing.toolkit import (
    NODES,
    FirstRoom,
    OwnNodes,
    PlacementGroup,
    PlannerCache,
    build_plan,
    open_instances,
    place,
    without_interference,
)
from eva_master.ports import Planned, PolicyKind
from eva_wire.values.ids import JobId, Millis

NAME = "fifo"


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

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """State the line; place who does not stand in it."""
        home = OwnNodes(snapshot)
        queued: list[JobId] = []
        others: list[PlacementGroup] = []
        behind: list[PlacementGroup] = []
        held_up = False
        for job, runs in sorted(waiting_runs(snapshot), key=_arrival):
            if not job.stands_in_line:
                others += grouped(job, runs)
                held_up = held_up or (
                    home.hold(runs) and not self._has_room(snapshot, others, home)
                )
                continue
            at_home, away = home.divided(runs)
            others += grouped(job, away)
            if at_home and not held_up:
                queued.append(job.id)
            elif at_home:
                behind += grouped(job, at_home)
        plan = Plan()
        if others or behind or self._config.explained:
            plan = self._placed(snapshot, others, behind, home)
        if not home.views:
            return plan, memory
        pool = home.pool("the operator's own nodes, whose room is given by arrival")
        lines = (Line((NODES,), tuple(queued), by_arrival=True),) if queued else ()
        return replace(plan, pools=(pool,), lines=lines), memory

    def _has_room(
        self, snapshot: Snapshot, groups: Sequence[PlacementGroup], home: OwnNodes
    ) -> bool:
        """Whether all of some groups can be placed now."""
        instances = open_instances(snapshot, self._cache)
        return not place(instances, groups, FirstRoom(instances, home).put)

    def _placed(
        self,
        snapshot: Snapshot,
        groups: Sequence[PlacementGroup],
        behind: Sequence[PlacementGroup],
        home: OwnNodes,
    ) -> Plan:
        instances = open_instances(snapshot, self._cache)
        unplaced = place(instances, groups, FirstRoom(instances, home).put)
        unplaced += place(instances, behind, lambda _: None)
        occupants = without_interference if self._config.explained else None
        return build_plan(snapshot, instances, unplaced, occupants)


def _arrival(waits: tuple[JobView, Sequence[RunView]]) -> tuple[int, Millis, JobId]:
    """The place of a job by priority and arrival."""
    job, _ = waits
    return -job.priority, job.submitted_ms, job.id


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Fifo,
    gives_lines=True,
    reads=reads_none,
)
