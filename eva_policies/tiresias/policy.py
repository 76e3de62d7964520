"""The rounds of the policy `tiresias`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.policy import FleetPolicy
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.turns import turn_plan, unplaced
from eva_master.packing.toolkit import open_instances
from eva_master.ports import Planned, PolicyKind
from eva_policies.tiresias.config import NAME, Config
from eva_policies.tiresias.queues import in_order
from eva_wire.values.ids import Family


class Tiresias(FleetPolicy[Config]):
    """Gives a fleet to those who have had least of it, and tells no type from another.

    A job stays where it is until somebody who comes before it needs the room. Then it goes to where
    there is room, or waits.
    """

    name = NAME

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Seat waiting contenders, if need be in the room of those who come after."""
        config = self._config
        fleet, contenders = self._contenders.of(snapshot, 1000 * config.lease_s)
        instances = open_instances(snapshot, self._cache)
        seats = Seats(snapshot, instances, contenders)
        for contender in contenders:
            seats.back(contender)  # Contenders stay until another one needs the room.
        order = in_order(contenders, snapshot.now_ms, config.first_queue_gpu_s)
        rooms = _Rooms(seats, instances, order, tuple(fleet.machines))
        for number, contender in enumerate(order):
            if contender.chooses and not seats.has(contender) and not rooms.idle(contender):
                rooms.emptied(number)
        why = dict.fromkeys(
            (contender.id for contender in unplaced(contenders, instances)),
            "others have had less GPU time",
        )
        plan = turn_plan(
            snapshot, instances, contenders, why, explained=config.explained, lease_s=config.lease_s
        )
        return plan, memory


class _Rooms:
    """Finds room for contenders, one after the other.

    Args:
        seats: The fleet.
        instances: Instances of the fleet.
        order: The contenders in their order.
        types: Types of the fleet.
    """

    def __init__(
        self,
        seats: Seats,
        instances: OpenInstances,
        order: Sequence[Contender],
        types: Sequence[Family],
    ) -> None:
        self._seats = seats
        self._instances = instances
        self._order = order
        self._types = types
        self._too_large: set[object] = set()
        """Kinds of contenders that find no room any more, whichever others give way."""

    def idle(self, one: Contender) -> bool:
        """Seat a contender where it was, else on the type with least room of those with enough."""
        if self._seats.back(one):
            return True
        types = sorted(one.types, key=lambda it: (self._seats.room(it), it))
        if one.fixed or not types:
            return self._seats.on(one, self._types)
        return any(self._seats.on(one, (family,)) for family in types)

    def emptied(self, number: int) -> bool:
        """Seat a contender in the room of later ones.

        The last contenders give way first, on the type where the first of those who give way comes
        last; for a gang that no type holds, on all types.

        Args:
            number: The contender's place in the order.
        """
        contender = self._order[number]
        kind = (
            frozenset(Counter(run.task.demand for run in contender.runs).items()),
            contender.fixed,
        )
        if kind in self._too_large:
            return False
        each: list[Sequence[Family]] = [(family,) for family in sorted(contender.types)]
        options = [
            (-leaving[-1], len(leaving), types, leaving)
            for types in each or [self._types]
            if (leaving := self._leaving(number, types))
        ]
        if not options:
            self._too_large.add(kind)
            return False
        *_, types, leaving = min(options)
        for other in leaving:
            self._take(self._order[other])
        return self._seats.on(contender, types)

    def _leaving(self, number: int, types: Sequence[Family]) -> list[int]:
        """Contenders that must leave types so that one is seated; none if that is not enough."""
        contender, leaving = self._order[number], list[int]()
        # a quick comparison before the full one
        need = contender.demand[types[0]] if len(types) == 1 else NOTHING
        mark, room, fits = self._instances.mark(), self._seats.room(types[0]), False
        for later in range(len(self._order) - 1, number, -1):
            other = self._order[later]
            if other.fixed or not self._is_on(other, types):
                continue
            leaving.append(later)
            self._take(other)
            room += other.demand.get(types[0], NOTHING)
            fits = need.fits(room) and self._seats.on(contender, types)
            if fits:
                break
        self._instances.back(mark)
        return leaving if fits else []

    def _is_on(self, one: Contender, types: Sequence[Family]) -> bool:
        """Whether all of a contender is seated, and some of it on some types."""
        rows = [self._instances.row_of.get(run.id) for run in one.runs]
        return None not in rows and any(
            self._instances.offerings[row].type.family in types for row in rows if row is not None
        )

    def _take(self, one: Contender) -> None:
        for run in one.runs:
            self._instances.take(run.id)


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Tiresias,
    time_shares=True,
    reads=reads_none,
)
