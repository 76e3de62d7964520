"""The fleet: what the cluster has, or may have by its limits, of each type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.room import by_offering, more_of
from eva_master.packing.valuation.reservation_price import Demand
from eva_wire.values.ids import Family, InstanceId

_FEW = 256
"""Of more tasks each kind is looked at by itself."""


def is_fixed(offering: Offering) -> bool:
    """Whether only so many may exist of an offering: then it belongs to the fleet."""
    return offering.purchase is Purchase.OWNED or offering.limit is not None


def fixed_live(snapshot: Snapshot) -> frozenset[InstanceId]:
    """The live instances that belong to the fleet.

    Limits are those of the catalog: a quota of the cloud limits offerings that had no limit when
    their instances were bought. An instance whose offering is not listed keeps its own.
    """
    listed = {offering.id: offering for offering in snapshot.catalog}
    return frozenset(
        view.id
        for view in snapshot.instances
        if is_fixed(listed.get(view.offering.id, view.offering))
    )


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fixed fleet, as if it were empty.

    Attributes:
        machines: For each type, in order: the number of instances of each capacity.
        live: The instances of it that exist.
    """

    machines: Mapping[Family, Mapping[Resources, int]]
    live: frozenset[InstanceId]

    def capacity(self) -> dict[Family, Resources]:
        """Capacity of each type, summed over its instances."""
        return {
            family: sum((each.times(count) for each, count in sizes.items()), NOTHING)
            for family, sizes in self.machines.items()
        }

    def seats(self, family: Family, need: Resources) -> int | None:
        """Number of tasks with a demand that find room on a type; `None` for any number."""
        each = [(need.times_in(size), count) for size, count in self.machines[family].items()]
        if any(room is None for room, _ in each):
            return None
        return sum(room * count for room, count in each if room is not None)

    def types_for(self, runs: Iterable[RunView]) -> list[Family] | None:
        """Types on which some task runs would find room together.

        Args:
            runs: Task runs that are placed together.

        Returns:
            The types that have room for all of them; `None` if they find none on all types
            together.
        """
        kinds = Counter(run.task.demand for run in runs)
        if not self._hold(kinds, tuple(self.machines)):
            return None
        return [family for family in self.machines if self._hold(kinds, (family,))]

    def _hold(self, kinds: Mapping[Demand, int], families: Sequence[Family]) -> bool:
        """Whether tasks find room on some types, placing distinct demands largest first."""
        for demand, count in kinds.items():
            if sum(self._on(family, demand, count) for family in families) < count:
                return False
        wanted = sum(kinds.values())
        if len(kinds) == 1 or wanted > _FEW:
            return True
        rooms = [
            (family, size)
            for family in families
            for size, count in sorted(self.machines[family].items())
            for _ in range(min(count, wanted))
        ]
        largest = sorted(kinds, key=lambda it: max(need for _, need in it), reverse=True)
        return all(_seat(dict(demand), rooms) for demand in largest for _ in range(kinds[demand]))

    def _on(self, family: Family, demand: Demand, count: int) -> int:
        """How many of so many tasks find room on a type."""
        need = next((need for name, need in demand if name == family), None)
        if need is None:
            return 0
        room = self.seats(family, need)
        return count if room is None else min(room, count)


def _seat(demand: Mapping[Family, Resources], rooms: list[tuple[Family, Resources]]) -> bool:
    """Take the room of a task from the first that has it; says whether one has."""
    for number, (family, free) in enumerate(rooms):
        need = demand.get(family)
        if need is not None and need.fits(free):
            rooms[number] = family, free - need
            return True
    return False


def fleet_of(snapshot: Snapshot) -> Fleet:
    """The fleet of a snapshot: limited offerings, live or still to be launched.

    Args:
        snapshot: The cluster. Offerings that are out of stock count only with their live instances.
    """
    live_count = by_offering(snapshot.instances)
    machines: dict[Family, Counter[Resources]] = {}
    live = fixed_live(snapshot)
    for view in snapshot.instances:
        if view.id in live:
            machine = view.offering.type
            machines.setdefault(machine.family, Counter())[machine.capacity] += 1
    for offering in snapshot.catalog:
        more = more_of(offering, live_count)
        if more is None or offering.purchase is Purchase.OWNED:
            continue
        if more > 0 and offering.available(snapshot.now_ms):
            machine = offering.type
            machines.setdefault(machine.family, Counter())[machine.capacity] += more
    return Fleet({family: machines[family] for family in sorted(machines)}, live)
