"""Seats for tasks that wait: room, what may still be bought, and members of pools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eva_master.model.catalog import Offering
from eva_master.model.fleet.partitions import ShortJobs
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.planning.standing import full_name
from eva_master.model.resources import Resources
from eva_master.model.values import sameness
from eva_master.packing.room import by_offering, more_of, need_on, room_beside, room_left
from eva_master.packing.valuation.reservation_price import hosts
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId

Rank = tuple[int, int]
"""Order of those who wait: the more urgent first, then those which have waited for longer."""


@dataclass(frozen=True, slots=True)
class SeatingPartition:
    """A partition, as far as seating needs it.

    Attributes:
        name: Its name.
        seen: The part of the snapshot that its policy may see.
        lines: Pools claimed by the lines in which a job stands, by job.
        short: Definition of the jobs that will stand in lines once its policy has seen them; `None`
            if only jobs of the last plan do.
        instances: Number of further instances allowed by its own limits; `None` for any number.
        per_hour: Further spending per hour allowed, in micro-dollars; `None` for any amount.
        may_buy: Whether launches are possible at all, whatever others give up.
    """

    name: str
    seen: Snapshot
    lines: Mapping[JobId, frozenset[str]] = field(default_factory=dict)
    short: ShortJobs | None = None
    instances: int | None = None
    per_hour: int | None = None
    may_buy: bool = True


@dataclass(frozen=True, slots=True)
class WaitingUnit:
    """Task runs that wait and are placed together: those of a gang, or one of an array."""

    part: SeatingPartition
    job: JobView
    runs: tuple[RunView, ...]

    @property
    def rank(self) -> Rank:
        """Its order among those who wait."""
        times = (run.since_ms for run in self.runs if run.since_ms is not None)
        return -self.job.priority, min(times, default=self.job.submitted_ms)

    @property
    def kind(self) -> object:
        """Units of one kind fit the same rooms."""
        return self.part.name, self.job.id, tuple([run.task.demand for run in self.runs])

    def claims(self, member: SparedMember) -> bool:
        """Whether it stands in a line for the member's pool."""
        pools = self.part.lines.get(self.job.id, frozenset())
        return member.part == self.part.name and member.view.pool in pools


@dataclass(frozen=True, slots=True)
class SparedMember:
    """A member of a pool that may be given up.

    Attributes:
        part: Name of the partition of its pool.
        view: The instance.
        guard: The first of those that wait for room in its pool and would fit there: who comes
            later does not get the member. `None` if there are none.
    """

    part: str
    view: InstanceView
    guard: Rank | None = None

    @property
    def pool(self) -> str:
        """Name of its pool in the whole cluster."""
        return full_name(self.part, self.view.pool)


def waiting(*parts: SeatingPartition) -> list[WaitingUnit]:
    """Task runs of partitions that have no place, gangs whole."""
    units: list[WaitingUnit] = []
    for part in parts:
        runs = part.seen.waiting
        for job in part.seen.jobs if runs else ():
            ours = runs.get(job.id, {})
            present = tuple([ours[name] for name in job.runs if name in ours]) if ours else ()
            if job.spec.kind is JobKind.GANG and present:
                units.append(WaitingUnit(part, job, present))
            elif present:
                units += [WaitingUnit(part, job, (run,)) for run in present]
    return units


def is_seen(unit: WaitingUnit) -> bool:
    """Whether a plan has decided about a unit already, or it is certain to stand in no line."""
    job, short = unit.job, unit.part.short
    if job.id in unit.part.lines or unit.runs[0].held:
        return True
    if short is None:
        return False
    expected = None if job.progress.estimate is None else job.progress.estimate.usual_ms
    return not (job.stands_in_line and short.has(job.spec.latency, expected))


def members_of(
    part: SeatingPartition, units: Iterable[WaitingUnit], views: Iterable[InstanceView]
) -> list[SparedMember]:
    """Members of pools of a partition, each with its guard.

    Args:
        part: The partition.
        units: The units of the partition that wait.
        views: The instances.
    """
    first: dict[object, tuple[Rank, WaitingUnit]] = {}
    for unit in units:
        run, rank = unit.runs[0], unit.rank
        # Units that are alike in these guard the same members.
        kind = unit.job.id, run.held, sameness(run.task)
        if kind not in first or rank < first[kind][0]:
            first[kind] = rank, unit
    return [_member(part, first.values(), view) for view in views]


def _member(
    part: SeatingPartition, units: Iterable[tuple[Rank, WaitingUnit]], view: InstanceView
) -> SparedMember:
    member = SparedMember(part.name, view)
    ranks = (
        rank
        for rank, unit in units
        if (unit.claims(member) or not is_seen(unit))
        and hosts(view.offering, unit.runs[0].task.demand)
    )
    return SparedMember(part.name, view, min(ranks, default=None))


@dataclass(slots=True)
class _MemberRoom:
    """Room that is free on an instance.

    Attributes:
        member: Its name if it is a member of a pool that was handed over.
    """

    offering: Offering
    free: Resources
    member: InstanceId | None = None


@dataclass(slots=True)
class _RemainingRoom:
    """Room that is left while units are seated one after the other.

    Attributes:
        slots: How many more there may be of offerings with a limit.
        cluster: How many more instances there may be; `None` for any number.
        instances: Of partitions with a limit. per_hour: Likewise.
        rooms: Room on instances, those that are bought included, by partition.
        members: Members of pools that nobody has been given.
    """

    slots: dict[OfferingId, int]
    cluster: int | None
    instances: dict[str, int]
    per_hour: dict[str, int]
    rooms: dict[str, list[_MemberRoom]]
    members: dict[InstanceId, SparedMember]

    def copy(self) -> _RemainingRoom:
        """Return a copy to try changes with."""
        return _RemainingRoom(
            dict(self.slots),
            self.cluster,
            dict(self.instances),
            dict(self.per_hour),
            {
                name: [_MemberRoom(room.offering, room.free, room.member) for room in rooms]
                for name, rooms in self.rooms.items()
            },
            dict(self.members),
        )


@dataclass(frozen=True, slots=True)
class UnitSeat:
    """Outcome for a unit.

    Attributes:
        complete: Whether all of it has room.
        handed: Members that it takes over.
        released: Members that are terminated so that other offerings may be bought.
        bought: Offerings that are bought.
        places: Task runs that get room on members in `handed`, each with its member.
    """

    complete: bool
    handed: tuple[SparedMember, ...] = ()
    released: tuple[SparedMember, ...] = ()
    bought: tuple[Offering, ...] = ()
    places: tuple[tuple[RunId, InstanceId], ...] = ()

    @property
    def members(self) -> tuple[SparedMember, ...]:
        """Members of pools that the unit depends on."""
        return (*self.handed, *self.released)


class PoolSeating:
    """Gives units room, using members of pools last.

    Args:
        parts: The partitions of the units.
        cluster: Number of further instances allowed in the cluster; `None` for any number.
        members: Members of pools that may be given up.
        vacant: Whether room on instances outside pools counts.
        refused: Sets of offerings that the cloud has refused together, since they count against one
            quota: releasing one of a set makes room for any other.
    """

    def __init__(
        self,
        parts: Sequence[SeatingPartition],
        cluster: int | None,
        members: Iterable[SparedMember] = (),
        *,
        vacant: bool = True,
        refused: Collection[Collection[OfferingId]] = (),
    ) -> None:
        self._refused = refused
        slots: dict[OfferingId, int] = {}
        for part in parts:
            slots.update(_slots(part.seen))
        self._left = _RemainingRoom(
            slots,
            cluster,
            {part.name: part.instances for part in parts if part.instances is not None},
            {part.name: part.per_hour for part in parts if part.per_hour is not None},
            {part.name: _rooms(part.seen) if vacant else [] for part in parts},
            {member.view.id: member for member in members},
        )

    @property
    def slots(self) -> Mapping[OfferingId, int]:
        """Further instances allowed of offerings with a limit."""
        return self._left.slots

    @property
    def cluster(self) -> int | None:
        """Further instances allowed in the cluster; `None` for any number."""
        return self._left.cluster

    @property
    def members(self) -> Collection[InstanceId]:
        """Members of pools that no unit has been given."""
        return self._left.members

    def seat(self, unit: WaitingUnit, *, take: bool = True) -> UnitSeat:
        """Give a unit room; a unit that finds too little takes none.

        Args:
            unit: Which.
            take: Whether the room is taken; else it is looked for alone.
        """
        before, self._left = self._left, self._left.copy()
        handed: list[SparedMember] = []
        released: list[SparedMember] = []
        bought: list[Offering] = []
        places: list[tuple[RunId, InstanceId]] = []
        complete = True
        for run in unit.runs:
            if (room := self._take_room(unit, run)) is not None:
                places += [] if room.member is None else [(run.id, room.member)]
                continue
            purchase = self._purchase(unit, run)
            if purchase is None or purchase[1]:
                member = self._hand(unit, run)
                if member is not None:
                    handed.append(member)
                    places.append((run.id, member.view.id))
                    continue
            if purchase is None:
                complete = False
                break
            bought.append(purchase[0])
            released += purchase[1]
            self._buy(unit, run, *purchase)
        if not (complete and take):
            self._left = before
        return UnitSeat(complete, tuple(handed), tuple(released), tuple(bought), tuple(places))

    def _take_room(self, unit: WaitingUnit, run: RunView) -> _MemberRoom | None:
        for room in self._left.rooms[unit.part.name]:
            need = run.task.demand_on(room.offering.type.family)
            if need is not None and need.fits(room.free):
                room.free = room.free - need
                return room
        return None

    def _hand(self, unit: WaitingUnit, run: RunView) -> SparedMember | None:
        """Take over a member of a pool of the same partition, the one with the least capacity."""
        fitting = [
            member
            for member in self._left.members.values()
            if member.part == unit.part.name
            and _yields(member, unit)
            and hosts(member.view.offering, run.task.demand)
        ]
        if not fitting:
            return None
        member = min(fitting, key=lambda it: (it.view.offering.price, it.view.id))
        del self._left.members[member.view.id]
        self._add_room(unit, run, member.view.offering, member.view.id)
        return member

    def _purchase(
        self, unit: WaitingUnit, run: RunView
    ) -> tuple[Offering, list[SparedMember]] | None:
        """Offering to buy for a run, with the fewest possible members to release first.

        `None` if nothing may be bought.
        """
        if not unit.part.may_buy:
            return None
        purchase: tuple[Offering, list[SparedMember]] | None = None
        sold = (offering for offering in unit.part.seen.catalog if hosts(offering, run.task.demand))
        for offering in sorted(sold, key=lambda it: (it.price, it.id)):
            going = self._going(unit, offering)
            if going is not None and (purchase is None or len(going) < len(purchase[1])):
                purchase = offering, going
            if going == []:
                break
        return purchase

    def _going(self, unit: WaitingUnit, offering: Offering) -> list[SparedMember] | None:
        """Members to release so that an offering may be bought; `None` if that is not enough."""
        rest, name = self._left, unit.part.name
        able = [member for member in rest.members.values() if _yields(member, unit)]
        able.sort(key=lambda it: (it.view.offering.price, it.view.id))
        going: list[SparedMember] = []
        while True:
            serves = self._serving(unit, offering)
            ours = [member for member in going if member.part == name]
            freed = sum(member.view.offering.price for member in ours)
            if serves and not any(member.view.offering.id in serves for member in going):
                helpful = [member for member in able if member.view.offering.id in serves]
            elif rest.cluster is not None and rest.cluster + len(going) < 1:
                helpful = able
            elif rest.instances.get(name, 1) + len(ours) < 1 or (
                rest.per_hour.get(name, offering.price) + freed < offering.price
            ):
                helpful = [member for member in able if member.part == name]
            else:
                return going
            more = next((member for member in helpful if member not in going), None)
            if more is None:
                return None
            going.append(more)

    def _serving(self, unit: WaitingUnit, offering: Offering) -> Collection[OfferingId]:
        """Offerings of which an instance must be released first; empty if one may be bought now."""
        if not offering.available(unit.part.seen.now_ms):
            together = (offerings for offerings in self._refused if offering.id in offerings)
            return {offering.id}.union(*together)
        return {offering.id} if self._left.slots.get(offering.id) == 0 else ()

    def _buy(
        self, unit: WaitingUnit, run: RunView, offering: Offering, going: list[SparedMember]
    ) -> None:
        rest, name = self._left, unit.part.name
        for member in going:
            del rest.members[member.view.id]
            if member.view.offering.id in rest.slots:
                rest.slots[member.view.offering.id] += 1
            if member.part in rest.instances:
                rest.instances[member.part] += 1
            if member.part in rest.per_hour:
                rest.per_hour[member.part] += member.view.offering.price
        if offering.id in rest.slots:
            rest.slots[offering.id] = max(0, rest.slots[offering.id] - 1)
        if rest.cluster is not None:
            rest.cluster += len(going) - 1
        if name in rest.instances:
            rest.instances[name] -= 1
        if name in rest.per_hour:
            rest.per_hour[name] -= offering.price
        self._add_room(unit, run, offering)

    def _add_room(
        self, unit: WaitingUnit, run: RunView, offering: Offering, member: InstanceId | None = None
    ) -> None:
        """Note what a run leaves of an instance that it is the first on."""
        room = _MemberRoom(offering, room_beside(offering, need_on(run.task, offering)), member)
        self._left.rooms[unit.part.name].append(room)


def _yields(member: SparedMember, unit: WaitingUnit) -> bool:
    """Whether a unit may have a member."""
    if unit.claims(member):
        return False
    return member.guard is None or unit.rank < member.guard


def _slots(seen: Snapshot) -> dict[OfferingId, int]:
    used = by_offering(seen.instances)
    slots = {offering.id: more_of(offering, used) for offering in seen.catalog}
    return {name: max(0, more) for name, more in slots.items() if more is not None}


def _rooms(seen: Snapshot) -> list[_MemberRoom]:
    """Room on instances outside pools."""
    offerings = {view.id: view.offering for view in seen.instances if not view.pool}
    free = room_left(offerings, seen.runs)
    return [_MemberRoom(offerings[name], room) for name, room in free.items()]
