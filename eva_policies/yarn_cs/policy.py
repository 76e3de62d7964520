"""The rounds of the policy `yarn_cs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.policy import FleetPolicy
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.turns import turn_plan
from eva_master.packing.toolkit import open_instances
from eva_master.ports import Planned, PolicyKind
from eva_wire.values.ids import Family, RunId

NAME = "yarn_cs"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        explained: Give reasons with every plan; they decide nothing.
    """

    explained: bool = True


class YarnCs(FleetPolicy[Config]):
    """Jobs by priority and arrival, wherever there is room.

    A job stays where it begins until it ends. One that finds no room holds up all that come after
    it. Types are not told apart: a job takes what has most room, and a gang may be on several.
    """

    name = NAME

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Seat who waits, in order, up to the first that finds no room."""
        fleet, contenders = self._contenders.of(snapshot, 0)
        instances = open_instances(snapshot, self._cache)
        seats = Seats(snapshot, instances, ())
        why = _seated_in_order(seats, contenders, tuple(fleet.machines))
        plan = turn_plan(snapshot, instances, contenders, why, explained=self._config.explained)
        return plan, memory


def _seated_in_order(
    seats: Seats, contenders: Sequence[Contender], types: Sequence[Family]
) -> dict[RunId, str]:
    """Seat contenders until one finds no room; return why the others wait."""
    why: dict[RunId, str] = {}
    head: Contender | None = None
    for contender in contenders:
        if seats.has(contender) or not contender.chooses:
            continue
        if head is not None:
            why[contender.id] = f"{head.job.id} came first and waits for room"
        elif not seats.on(contender, sorted(types, key=seats.room, reverse=True)):
            head = contender
            why[contender.id] = "it is first in line and waits for room for all of it"
    return why


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=YarnCs,
    orders=True,
    reads=reads_none,
)
