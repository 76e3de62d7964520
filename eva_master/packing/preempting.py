"""Choice of the task runs to suspend to make room for others: the cheapest set of lower priority.

The search is exact unless it takes too many steps, a gang has many members or an instance many
tasks; then the best set found counts. Searches are deterministic, so that the control loop and the
simulation agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.planning.plan import Assign, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.room import room_left
from eva_wire.values.ids import InstanceId, JobId, RunId

Room = Hashable
"""A live instance by its id, or one that may still be bought."""
Member = Mapping[Room, Resources]
"""Demand of a task run in each room that could host it."""
Price = tuple[int, int, int]
"""Cost of a set of victims, compared in this order: the highest priority among them, money, and the
number of task runs.
"""
FREE: Price = (-1, 0, 0)
_FEW = 24
"""Up to this number of members, or victims in a room, all combinations are compared."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Task runs that would be suspended together: those of a gang, or one of an array.

    Attributes:
        priority: Priority of the job; -1 if none of it runs, so that nothing is lost.
        cost: Value of the room idle while they stop and start again, in micro-dollars per hour
            times milliseconds.
        frees: Room that the suspension frees, by instance.
    """

    job: JobId
    runs: tuple[RunId, ...]
    priority: int
    cost: int
    frees: Mapping[InstanceId, Resources]

    @property
    def price(self) -> Price:
        """Cost of the suspension by itself."""
        return self.priority, self.cost, len(self.runs)


def together(price: Price, victim: Victim) -> Price:
    """Cost of a set with one more victim in it."""
    priority, cost, runs = price
    return max(priority, victim.priority), cost + victim.cost, runs + len(victim.runs)


class VictimSearch:
    """Finds room for one group of task runs after the other, each by the cheapest set of victims.

    Args:
        free: Free room of each instance.
        victims: Task runs that may be suspended.
        steps: Limit of search steps, for all groups together.

    Attributes:
        steps: Remaining steps; zero or less if the search was cut short.
    """

    def __init__(
        self, free: Mapping[Room, Resources], victims: Sequence[Victim], steps: int
    ) -> None:
        self._free = dict(free)
        self._victims = sorted(victims, key=lambda it: (it.price, it.runs))
        self.steps = steps

    def seat(self, members: Sequence[Member]) -> tuple[Victim, ...] | None:
        """Find room for task runs that are placed together, and count it as taken.

        Returns:
            The victims to suspend; `None` if there is no room even by suspending all, or none was
            found in time.
        """
        before = dict(self._free), list(self._victims)
        chosen: list[Victim] = []
        parts = [members] if len(members) <= _FEW else [[member] for member in members]
        for part in parts:
            suspended = self._seat(part)
            if suspended is None:
                self._free, self._victims = before
                return None
            chosen.extend(suspended)
        return tuple(chosen)

    def _seat(self, members: Sequence[Member]) -> tuple[Victim, ...] | None:
        search = _VictimTree(self._free, self._victims, members, self.steps)
        search.run()
        self.steps = search.steps
        if search.found is None:
            return None
        chosen, seats = search.found
        for victim in chosen:
            self._victims.remove(victim)
            for place, freed in victim.frees.items():
                self._free[place] = self._free[place] + freed
        for member, room in zip(members, seats, strict=True):
            self._free[room] = self._free[room] - member[room]
        return chosen


class _VictimTree:
    """Depth first over rooms and victims; what costs as much as the best found is not followed.

    Attributes:
        found: The cheapest victims, and the room of each member.
        steps: How many are left.
    """

    def __init__(
        self,
        free: Mapping[Room, Resources],
        victims: Sequence[Victim],
        members: Sequence[Member],
        steps: int,
    ) -> None:
        self.found: tuple[tuple[Victim, ...], tuple[Room, ...]] | None = None
        self.steps = steps
        self._free = dict(free)
        self._members = members
        self._by_room: defaultdict[Room, list[Victim]] = defaultdict(list)
        for victim in victims:
            for room in victim.frees:
                self._by_room[room].append(victim)
        self._best: Price | None = None
        self._chosen: list[Victim] = []
        self._seats: list[Room] = []
        self._orders = [self._order(member) for member in members]

    def run(self) -> None:
        """Search until all is compared, or for as long as it may."""
        self._place(FREE)

    def _too_dear(self, price: Price) -> bool:
        return self._best is not None and price >= self._best

    def _place(self, price: Price) -> None:
        """Find room for the next member and all after it."""
        number = len(self._seats)
        if number == len(self._members):
            if not self._too_dear(price):
                self._best = price
                self.found = tuple(self._chosen), tuple(self._seats)
            return
        for room in self._orders[number]:
            if self.steps < 0 or self._too_dear(price):
                return
            self._make(room, self._members[number][room], 0, price)

    def _order(self, member: Member) -> list[Room]:
        """The rooms of a member, those first where it is cheap to make room."""
        judged = [(self._greedy(room, need), str(room), room) for room, need in member.items()]
        return [room for price, _, room in sorted(judged, key=lambda it: it[:2]) if price]

    def _greedy(self, room: Room, need: Resources) -> Price | tuple[()]:
        """The price of the cheapest victims one by one; empty if all together are too few."""
        free, price = self._free[room], FREE
        for victim in self._by_room[room]:
            if need.fits(free):
                break
            free = free + victim.frees[room]  # type: ignore[index]
            price = together(price, victim)
        return price if need.fits(free) else ()

    def _make(self, room: Room, need: Resources, first: int, price: Price) -> None:
        """Make room with victims from a position on, in their order."""
        self.steps -= 1
        if self.steps < 0 or self._too_dear(price):
            return
        if need.fits(self._free[room]):
            self._free[room] = self._free[room] - need
            self._seats.append(room)
            self._place(price)
            self._seats.pop()
            self._free[room] = self._free[room] + need
            return
        available = [
            candidate for candidate in self._by_room[room][first:] if candidate not in self._chosen
        ]
        if not need.fits(self._free[room] + _sum(room, available)):
            return
        if len(available) > _FEW:
            self._make_greedily(room, need, available, price)
            return
        for position in range(first, len(self._by_room[room])):
            victim = self._by_room[room][position]
            if victim in self._chosen:
                continue
            self._suspend(victim, +1)
            self._make(room, need, position + 1, together(price, victim))
            self._suspend(victim, -1)

    def _make_greedily(
        self, room: Room, need: Resources, there: Sequence[Victim], price: Price
    ) -> None:
        """Make room with the cheapest victims one by one, less those that turn out superfluous."""
        taken: list[Victim] = []
        free = self._free[room]
        for victim in there:
            if need.fits(free):
                break
            taken.append(victim)
            free = free + victim.frees[room]  # type: ignore[index]
        for victim in reversed(taken.copy()):
            if need.fits(free - victim.frees[room]):  # type: ignore[index]
                taken.remove(victim)
                free = free - victim.frees[room]  # type: ignore[index]
        for victim in taken:
            self._suspend(victim, +1)
            price = together(price, victim)
        self._make(room, need, len(self._by_room[room]), price)
        for victim in reversed(taken):
            self._suspend(victim, -1)

    def _suspend(self, victim: Victim, sign: int) -> None:
        if sign > 0:
            self._chosen.append(victim)
        else:
            self._chosen.pop()
        for room, freed in victim.frees.items():
            before = self._free[room]
            self._free[room] = before + freed if sign > 0 else before - freed


def _sum(room: Room, victims: Sequence[Victim]) -> Resources:
    total = NOTHING
    for victim in victims:
        total = total + victim.frees[room]  # type: ignore[index]
    return total


class FutureLoad:
    """Future load of the victims' instances.

    Args:
        whole: The snapshot with the victims.
        plan: The plan, which determines the places of the others.
        victims: Task runs that do not count, unless `stays` has found room for them.
    """

    def __init__(self, whole: Snapshot, plan: Plan, victims: Collection[RunId]) -> None:
        offerings = {view.id: view.offering for view in whole.instances}
        placed = assigned(plan)
        places = {run.id: placed.get(run.id, run.instance) for run in whole.runs}
        others = [run for run in whole.runs if run.id not in victims]
        self._free = room_left(offerings, others, places)

    def stays(self, victim: Victim) -> bool:
        """Whether a victim has room anyway; if so, it takes the room."""
        if not all(took.fits(self._free[where]) for where, took in victim.frees.items()):
            return False
        for where, took in victim.frees.items():
            self._free[where] = self._free[where] - took
        return True


def assigned(plan: Plan) -> dict[RunId, InstanceId]:
    """Places that a plan gives to task runs; new instances are named by numbers, as text."""
    return {
        entry.run: InstanceId(str(entry.on)) for entry in plan.entries if isinstance(entry, Assign)
    }
