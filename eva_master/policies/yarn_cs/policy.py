"""The rounds of the policy `yarn_cs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.ids import Family, RunId
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.fleet.contenders import Contender, Contenders
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.turns import turn_plan
from eva_master.packing.toolkit import PlannerCache, open_instances

NAME = "yarn_cs"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        explained: Give reasons with every plan; they decide nothing.
    """

    explained: bool = True


class YarnCs:
    """Jobs by priority and arrival, wherever there is room.

    A job stays where it begins until it ends. One that finds no room holds up all that come after
    it. Types are not told apart: a job takes what has most room, and a gang may be on several.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()
        self._contenders = Contenders()

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
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


@dataclass(frozen=True, slots=True)
class _PolicySpec:
    name: str = NAME
    config: type[Any] = Config
    reads = reads_none
    orders: bool = True

    def build(self, config: Any) -> YarnCs:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return YarnCs(config)


POLICY = _PolicySpec()
