"""The rounds of the policy `hadar`."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.policy import FleetPolicy
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.settling import settle
from eva_master.packing.fleet.turns import turn_plan
from eva_master.packing.toolkit import open_instances
from eva_master.ports import Planned, PolicyKind
from eva_policies.hadar.config import NAME, Config
from eva_policies.hadar.explanations import expectation, figures, reasons
from eva_policies.hadar.order import RankedContender, RoundOrder, ordered
from eva_wire.values.ids import Family


class Hadar(FleetPolicy[Config]):
    """Shares a fleet so that all jobs end soon, and most of them much sooner.

    In each round an LP gives the earliest end of all remaining work, and the worth of each type's
    time. Jobs without which that end is later go first, the longest of them before the others; then
    those whose work costs least, each on a type where it costs little more than on its best. The
    remaining jobs take idle room.
    """

    name = NAME

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Allot the fleet's room anew, except for leased places."""
        fleet, contenders = self._contenders.of(snapshot, 1000 * self._config.lease_s)
        instances = open_instances(snapshot, self._cache)
        seats = Seats(snapshot, instances, contenders)
        on = {
            contender.id: types for contender in contenders if (types := seats.types_of(contender))
        }
        capacity = fleet.capacity()
        order = ordered(contenders, capacity, on, self._config, snapshot.now_ms)
        mark = instances.mark()
        turns = [turn for turn in order.turns if turn.one.chooses]
        seated = [turn.one for turn in turns if _choose(turn, seats)]
        idle = [turn for turn in turns if not seats.has(turn.one)]
        seated += _fill(idle, seats, tuple(fleet.machines))
        settle(seats, instances, mark, seated)
        expected = expectation(order, seats, capacity)
        whys = reasons(order, expected)
        plan = turn_plan(
            snapshot,
            instances,
            contenders,
            whys,
            explained=self._config.explained,
            lease_s=self._config.lease_s if _held_up(order, seats) else None,
        )
        if not contenders:
            return plan, memory
        return replace(plan, figures={**plan.figures, **figures(order, expected)}), memory


def _choose(turn: RankedContender, seats: Seats) -> bool:
    """Seat who is next on types that suit it, be it where it was; says whether that is done."""
    if turn.parting is not None and seats.each(turn.one, turn.parting.types):
        return True
    if turn.mixed:
        return seats.on(turn.one, turn.suits)
    had = seats.types_of(turn.one)
    suits = sorted(turn.suits, key=lambda it: it not in had)
    return any(seats.on(turn.one, (family,)) for family in suits)


def _held_up(order: RoundOrder, seats: Seats) -> bool:
    """Whether a contender waits while a later one keeps a place by a lease."""
    waits = [number for number, turn in enumerate(order.turns) if not seats.has(turn.one)]
    kept = (number for number, turn in enumerate(order.turns) if not turn.one.chooses)
    return bool(waits) and waits[0] < max(kept, default=0)


def _fill(
    turns: Sequence[RankedContender], seats: Seats, types: Sequence[Family]
) -> list[Contender]:
    """Seat contenders in idle room: first on the type that is used best, at last on mixed types.

    Returns:
        The contenders seated, in that order.
    """
    seated = []
    pairs = sorted(
        (cost / turn.least if turn.least else 0.0, number, family)
        for number, turn in enumerate(turns)
        for family, cost in turn.costs.items()
        if family in turn.one.types
    )
    for _, number, family in pairs:
        contender = turns[number].one
        if not seats.has(contender) and seats.on(contender, (family,)):
            seated.append(contender)
    for turn in turns:
        fastest = sorted(turn.one.alone_ms, key=lambda it: (turn.one.alone_ms[it], it))
        every = (*fastest, *(family for family in types if family not in fastest))
        if not seats.has(turn.one) and seats.on(turn.one, every):
            seated.append(turn.one)
    return seated


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Hadar,
    time_shares=True,
    reads=reads_none,
)
