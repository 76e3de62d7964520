"""The rounds of the policy `gavel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.outlook import FleetForecast, expected_turn, outlook
from eva_master.packing.fleet.policy import FleetPolicy
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.turns import turn_plan, unplaced
from eva_master.packing.toolkit import open_instances
from eva_master.ports import Planned, PolicyKind
from eva_policies.gavel.allocation import Divide, makespan, max_min, max_sum
from eva_policies.gavel.config import NAME, PRESETS, Config
from eva_policies.gavel.granting import move_to_faster_type, take_turns
from eva_policies.gavel.memory import Division, Memory
from eva_policies.gavel.rounds import TypedClaim, claims, divided, received
from eva_wire.values.ids import Family, RunId

_ANYWAY_MS = 3_600_000
"""Time after which the fleet is divided anew though jobs and fleet are the same, since rates may be
better known. Time received so far still counts.
"""
_DIVIDE: Mapping[str, Divide] = {"max-min": max_min, "max-sum": max_sum, "makespan": makespan}


class Gavel(FleetPolicy[Config]):
    """Divides a fleet between jobs by an LP, and has them take turns so that each gets its part.

    All tasks of a job are on one type. While everybody has a place nobody gives up any; whoever is
    faster on a type where there is room moves there.
    """

    name = NAME

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Allot the fleet's room anew, except for leased places."""
        lease_ms = 1000 * self._config.lease_s
        fleet, contenders = self._contenders.of(snapshot, lease_ms)
        capacity, now = fleet.capacity(), snapshot.now_ms
        before = Memory.read(memory)
        division = self._division(snapshot, contenders, capacity, before)
        order = claims(contenders, division, lease_ms)
        instances = open_instances(snapshot, self._cache)
        if all(contender.seated or not contender.chooses for contender in contenders):
            move_to_faster_type(Seats(snapshot, instances, ()), instances, order)
        else:
            seats = Seats(snapshot, instances, contenders)
            take_turns(seats, instances, tuple(fleet.machines), contenders, order)
        unseated = unplaced(contenders, instances)
        expected = FleetForecast({}, 0.0)
        if unseated:
            turn_ms = 1000 * max(self._config.lease_s, self._config.round_gap_s or 0)
            expected = _expected(order, Seats(snapshot, instances, ()), capacity, turn_ms)
        why = _reasons(unseated, order, expected)
        plan = turn_plan(
            snapshot,
            instances,
            contenders,
            why,
            explained=self._config.explained,
            lease_s=self._config.lease_s,
        )
        return plan, Memory(division, now).written() if contenders else None

    def _division(
        self,
        snapshot: Snapshot,
        contenders: Sequence[Contender],
        capacity: Mapping[Family, Resources],
        before: Memory | None,
    ) -> Division:
        """The last division with what was received since, or a new one if it is time for it."""
        now, divide = snapshot.now_ms, _DIVIDE[self._config.objective]
        if before is None:
            return divided(contenders, capacity, divide, now)
        more = received(snapshot, contenders, before.seen_ms)
        division = before.division.with_received(more, capacity)
        if now - division.at_ms < (1000 * self._config.divide_s if division.stale else _ANYWAY_MS):
            return division
        fresh = divided(contenders, capacity, divide, now)
        return fresh if division.stale else replace(fresh, received=division.received)


def _expected(
    order: Sequence[TypedClaim], seats: Seats, capacity: Mapping[Family, Resources], turn_ms: int
) -> FleetForecast:
    """When each contender has its turn, if all before it have one turn each.

    Contenders with a place keep it until the end of their turn.
    """
    first = dict[RunId, TypedClaim]()
    for claim in order:
        first.setdefault(claim.one.id, claim)
    queue = ((claim.one, claim.family) for claim in first.values())
    forecast = outlook(queue, seats, capacity, turn_ms)
    return replace(
        forecast, turns_ms={contender: ms + turn_ms for contender, ms in forecast.turns_ms.items()}
    )


def _reasons(
    left: Sequence[Contender], order: Sequence[TypedClaim], expected: FleetForecast
) -> dict[RunId, str]:
    """Reasons of contenders without a place: by the first claim of each."""
    waits = {contender.id for contender in left}
    whys: dict[RunId, str] = {}
    for claim in order:
        if claim.one.id in waits and claim.one.id not in whys:
            why = "others have had less of what is due to them on"
            turn = expected_turn(expected, claim.one)
            whys[claim.one.id] = f"{why} {claim.family}, or it has no room{turn}"
    return whys


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Gavel,
    presets=PRESETS,
    time_shares=True,
    reads=reads_none,
)
