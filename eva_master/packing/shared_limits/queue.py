"""Queue of the tasks that wait for limits that partitions share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from eva_master.model.catalog import Offering
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.packing.precedence import Precedence, among_all
from eva_master.packing.quotas import Use
from eva_master.packing.shared_limits.limit import (
    NO_OFFERING,
    Limit,
    LimitKind,
    LimitUnit,
    Parts,
    SharedLimits,
    Taken,
    changes_in_ms,
    gathers,
)
from eva_master.packing.shared_limits.seating import LimitSeat, LimitSeating, SharedRoom
from eva_master.packing.valuation.reservation_price import hosts
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis, OfferingId, RunId, number_of


class SharedQueue:
    """Queue of waiting units, in the order in which they get room that becomes free.

    The order is by priority, by deadline and by time. Free room is given out in that order, so each
    partition knows which room is for others, and may use the rest in its next round. Room is kept
    only for task runs that could use it; for a gang that needs more than is free, it is kept for
    limited times.

    Args:
        snapshot: The cluster.
        parts: Division of the cluster.
        shared: Limits that partitions share.

    Attributes:
        waiting: Waiting units, in order.
        seats: Outcome for each of them, in the same order.
    """

    def __init__(self, snapshot: Snapshot, parts: Parts, shared: SharedLimits) -> None:
        self._now = snapshot.now_ms
        self.home = parts.home
        self.room = SharedRoom(snapshot, parts, shared)
        self.waiting = waiting_in_order(snapshot, parts)
        seating = LimitSeating(self.room)
        self.seats = tuple(map(seating.seat, self.waiting))
        self.ranks: dict[RunId, int] = {
            run.id: rank for rank, unit in enumerate(self.waiting) for run in unit.runs
        }
        self._first: dict[JobId, int] = {}
        for rank, unit in enumerate(self.waiting):
            self._first.setdefault(unit.job.id, len(self.waiting) if self.rests(rank) else rank)

    def granted(self, partition: str) -> Iterator[tuple[JobId, frozenset[OfferingId]]]:
        """Jobs of a partition for which there is room, with the offerings that it may launch."""
        for unit, seat in zip(self.waiting, self.seats, strict=True):
            if unit.partition == partition and seat.complete:
                yield unit.job.id, seat.offerings or self.options(unit)

    def options(self, unit: LimitUnit) -> frozenset[OfferingId]:
        """Offerings that a unit's partition may launch for its first task; else `NO_OFFERING`."""
        options = self.room.options(unit.partition, unit.runs[0].task.demand)
        return frozenset(offering.id for offering, _ in options) or frozenset({NO_OFFERING})

    def kept(self, partition: str) -> Counter[Limit]:
        """Amount of each limit that is for other partitions."""
        kept: Counter[Limit] = Counter()
        for unit, seat in zip(self.waiting, self.seats, strict=True):
            if unit.partition != partition:
                kept.update(seat.taken)
        return kept

    def used(self, partition: str, use: Use) -> Use:
        """GPUs of quotas in use, together with those that are for other partitions.

        Args:
            partition: The partition.
            use: GPUs in use.
        """
        more: dict[str, Counter[Family]] = {}
        for unit, seat in zip(self.waiting, self.seats, strict=True):
            if unit.partition != partition and seat.gpus:
                more.setdefault(unit.job.spec.tenant, Counter()).update(seat.gpus)
        if not more:
            return use
        both = {name: Counter(families) for name, families in use.items()}
        for name, gpus in more.items():
            both.setdefault(name, Counter()).update(gpus)
        return both

    def before(self, partition: str, freed: Taken | None = None) -> RoomBefore:
        """Room for others who come before task runs of a partition, and for gangs of its own.

        A gang that gathers what is free comes before younger tasks of its own partition, too: else
        these would overtake tasks of others that wait behind it.

        Args:
            partition: Which.
            freed: How much more of each limit is free once its empty instances are gone.
        """
        ahead = [
            (rank, unit)
            for rank, (unit, seat) in enumerate(zip(self.waiting, self.seats, strict=True))
            if unit.partition != partition or (seat.taken and not seat.complete)
        ]
        return RoomBefore(self.room, ahead, freed)

    def contested(self, partition: str) -> set[Limit]:
        """The limits for which others than a partition wait, or of which these get something."""
        units = zip(self.waiting, self.seats, strict=True)
        others = (seat for unit, seat in units if unit.partition != partition)
        return {limit for seat in others for limit in (*seat.taken, *seat.lacking)}

    def line(self, limit: Limit) -> Iterator[tuple[LimitUnit, LimitSeat]]:
        """Units in the queue of a limit, in order: those that get some of it now, too."""
        for unit, seat in zip(self.waiting, self.seats, strict=True):
            if limit in seat.taken or limit in seat.lacking:
                yield unit, seat

    def first(self, limit: Limit) -> LimitUnit | None:
        """Unit that is next at a limit; no gang that leaves its turn to others for a while."""
        for rank, seat in enumerate(self.seats):
            if (limit in seat.taken or limit in seat.lacking) and not self.rests(rank):
                return self.waiting[rank]
        return None

    def rests(self, rank: int) -> bool:
        """Whether a gang leaves what is free to others for a while, since it needs more."""
        unit, seat = self.waiting[rank], self.seats[rank]
        return unit.together and not seat.complete and not gathers(self._now - unit.since_ms)

    def turn(self, rank: int) -> int:
        """How many units come before a unit, by its place in the order of all."""
        return len(self.waiting) if self.rests(rank) else rank

    def elsewhere(
        self, offering: Offering, partition: str, owner: str | None
    ) -> Iterator[LimitUnit]:
        """Units of other partitions that wait for what the end of an instance leaves, in order.

        The units are those to which a limit that the instance counts against leaves too little, and
        those that wait for an instance of its offering though no limit says so: it is not for
        sale. One that the cloud may refuse waits until it has a place.

        Args:
            offering: Of the instance.
            partition: The partition whose instance it is.
            owner: The user whose tasks it gets else; `None` if that is not known.
        """
        limits = set(self.room.limits_of(offering.id, owner))
        for unit, seat in zip(self.waiting, self.seats, strict=True):
            tries = {limit for limit in seat.taken if limit.kind is LimitKind.CLOUD}
            if unit.partition == partition or (seat.complete and not tries):
                continue
            if unit.together and not gathers(self._now - unit.since_ms):
                continue
            wanted = self._wants(unit, offering)
            short = limits & seat.lacking
            tried = not limits.isdisjoint(tries)
            unlimited = wanted and not seat.lacking
            if tried or unlimited or (short and self._gains(unit, seat, short)):
                yield unit

    def _gains(self, unit: LimitUnit, seat: LimitSeat, short: Set[Limit]) -> bool:
        """Whether a unit takes one more of some limits: a gang may lack yet more of another one."""
        if not unit.together:
            return True
        gained = LimitSeating(self.room, freed=dict.fromkeys(short, 1)).seat(unit).taken
        return any(gained.get(limit, 0) > seat.taken.get(limit, 0) for limit in short)

    def here(self, offering: Offering, partition: str) -> Iterator[LimitUnit]:
        """Units of a partition that an instance of an offering would serve, in order."""
        for unit in self.waiting:
            gathering = not unit.together or gathers(self._now - unit.since_ms)
            if unit.partition == partition and gathering and self._wants(unit, offering):
                yield unit

    def _wants(self, unit: LimitUnit, offering: Offering) -> bool:
        return wants(self.room.parts, unit, offering)

    def rank(self, unit: LimitUnit) -> int:
        """How many units come before one that waits."""
        return self.ranks[unit.runs[0].id]

    def rank_of(self, job: JobId) -> int:
        """How many units come before the first of a job; `LAST` if the job does not wait.

        A gang that leaves what is free to others comes behind them all.
        """
        return self._first.get(job, LAST)

    def rank_behind(self, priority: int) -> int:
        """How many units come before one that begins to wait now with a priority."""
        return sum(unit.job.priority >= priority for unit in self.waiting)

    def digest(self, partition: str) -> object:
        """Value that lasts as long as a partition has the same turns; `None` if nothing waits."""
        if all(unit.partition != partition for unit in self.waiting):
            return None
        first: dict[Limit, JobId] = {}
        ours: set[JobId] = set()
        waits: set[Limit] = set()
        for unit, seat in zip(self.waiting, self.seats, strict=True):
            for limit in (*seat.taken, *seat.lacking):
                first.setdefault(limit, unit.job.id)
            if unit.partition == partition:
                waits |= seat.lacking
                if seat.complete:
                    ours.add(unit.job.id)
        heads = tuple((limit, first[limit]) for limit in sorted(waits))
        used = self.used(partition, {})
        return self.kept(partition), frozenset(ours), heads, used

    def changes_ms(self) -> Millis | None:
        """When a gang that gathers what is free stops to, or one that stopped begins again."""
        incomplete = [
            unit.since_ms
            for unit, seat in zip(self.waiting, self.seats, strict=True)
            if unit.together and seat.lacking
        ]
        ends = (self._now + changes_in_ms(self._now - since) for since in incomplete)
        return Millis(min(ends)) if incomplete else None


class RoomBefore:
    """Room for other partitions' units, by how many of these come before.

    Args:
        room: The free room.
        others: Units of other partitions in order, with the ranks from which they come first.
        freed: Additional free room.
    """

    def __init__(
        self, room: SharedRoom, others: list[tuple[int, LimitUnit]], freed: Taken | None
    ) -> None:
        self._seating = LimitSeating(room, freed=freed)
        self._others = others
        self._looked_at = 0
        self._kept: Counter[Limit] = Counter()

    def kept(self, rank: int) -> Counter[Limit]:
        """Amount of each limit for units before a rank; ranks must not decrease."""
        while self._looked_at < len(self._others) and self._others[self._looked_at][0] < rank:
            self._kept.update(self._seating.seat(self._others[self._looked_at][1]).taken)
            self._looked_at += 1
        return self._kept


def wants(parts: Parts, unit: LimitUnit, offering: Offering) -> bool:
    """Whether an instance of an offering would serve a unit, by its size and partition."""
    return parts.sells(unit.partition, offering) and hosts(offering, unit.runs[0].task.demand)


def waiting_in_order(snapshot: Snapshot, parts: Parts) -> tuple[LimitUnit, ...]:
    """Units of all task runs that wait for a place: by priority, by deadline and by time.

    Args:
        snapshot: The cluster.
        parts: How it is divided.
    """
    return tuple(sorted(_waiting(snapshot, parts), key=_order))


def _waiting(snapshot: Snapshot, parts: Parts) -> Iterator[LimitUnit]:
    """Units of all task runs that wait for a place."""
    out, now = parts.out, snapshot.now_ms
    runs: dict[JobId, list[RunView]] = {}
    for run in snapshot.runs:
        if run.instance is None and not run.pinned and not run.replica and run.job not in out:
            runs.setdefault(run.job, []).append(run)
    for job in snapshot.jobs if runs else ():
        waits = runs.get(job.id)
        if not waits:
            continue
        home = parts.home(job.partition)
        for group in [waits] if job.spec.kind is JobKind.GANG else [[run] for run in waits]:
            since = max(parts.since.get(job.id, 0), min(_since(run, job, now) for run in group))
            yield LimitUnit(job, home, Millis(since), tuple(group))


def _since(run: RunView, job: JobView, now: Millis) -> Millis:
    return now if run.since_ms is None else max(run.since_ms, job.submitted_ms)


def _order(unit: LimitUnit) -> tuple[Precedence, int, int, int, str]:
    """Sort key by which units come first."""
    job = unit.job
    return among_all(job), unit.since_ms, job.submitted_ms, number_of(job.id), job.id


LAST = 10**9
"""The rank of whatever waits for nothing."""
