"""Limits that partitions share: a partition leaves what is free to the next in the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from eva_master.control.planning.validate_plan import Decision
from eva_master.control.rounds.rules import caps
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.quotas import Use
from eva_master.packing.room import by_offering
from eva_master.packing.shared_limits.limit import ALL_INSTANCES, Limit, LimitKind, LimitUnit
from eva_master.packing.shared_limits.queue import LAST, RoomBefore, SharedQueue
from eva_wire.values.ids import InstanceId, JobId, OfferingId, RunId


class PartitionShare:
    """The part of shared limits that the plans of a partition may use.

    Args:
        queue: The queue at these limits; `None` where nothing is shared.
        partition: The partition of the plans.
    """

    def __init__(self, queue: SharedQueue | None, partition: str) -> None:
        self.queue = queue
        self._partition = partition

    @property
    def contested(self) -> bool:
        """Whether others than the partition wait for shared limits."""
        return self.queue is not None and bool(self.queue.contested(self._partition))

    def shown(self, seen: Snapshot) -> Snapshot:
        """The snapshot of the partition without room that is free for others.

        Args:
            seen: The partition.
        """
        queue = self.queue
        if queue is None or not queue.waiting:
            return seen
        kept = queue.kept(self._partition)
        leeway = seen.leeway
        if kept[ALL_INSTANCES] and leeway.instances is not None:
            rest = max(0, leeway.instances - kept[ALL_INSTANCES])
            leeway = replace(leeway, instances=rest)
        return replace(seen, catalog=self._on_sale(seen, queue, kept), leeway=leeway)

    def _on_sale(self, seen: Snapshot, queue: SharedQueue, kept: Counter[Limit]) -> Catalog:
        """The catalog, with limits that leave out the share of others."""
        contested = {
            limit for limit in queue.contested(self._partition) if limit.kind is LimitKind.CLOUD
        }
        if not contested and not any(limit.kind is LimitKind.OFFERING for limit in kept):
            return seen.catalog
        used = by_offering(seen.instances)
        return tuple(
            self._lowered(offering, queue, kept, contested, used[offering.id])
            for offering in seen.catalog
        )

    def _lowered(
        self,
        offering: Offering,
        queue: SharedQueue,
        kept: Counter[Limit],
        contested: set[Limit],
        there: int,
    ) -> Offering:
        """An offering with the limit that is left to this partition."""
        most = offering.limit
        for limit in queue.room.limits_of(offering.id, None):
            if limit.kind is LimitKind.OFFERING and most is not None:
                most = max(0, most - kept[limit])
            elif limit in contested:
                free = there + max(0, queue.room.free[limit] - kept[limit])
                most = free if most is None else min(most, free)
        return offering if most == offering.limit else replace(offering, limit=most)

    def used(self, use: Use) -> Use:
        """Use that tenants make of their quotas, with what is for others."""
        return use if self.queue is None else self.queue.used(self._partition, use)

    def within(self, effect: PlanEffect) -> PlanEffect:
        """The part of a plan that leaves to others the room for which they take precedence.

        Use of an empty instance counts like a launch: its termination would leave room for another.

        Args:
            effect: The policy's plan.
        """
        queue = self.queue
        if queue is None or not queue.waiting or not effect.plan.entries:
            return effect
        cap = _SharedCap(queue, self._partition, effect)
        if not cap.takes_room:
            return effect
        return caps.within(effect, cap, sorted(effect.units, key=cap.rank))

    def explained(self, decision: Decision) -> Decision:
        """A decision that says for whom those wait that stand behind others of other partitions."""
        queue = self.queue
        if queue is None or not decision.holds:
            return decision
        turns = _Turns(queue, self._partition)
        holds = tuple((run, turns.reason(run) or why) for run, why in decision.holds)
        return decision if holds == decision.holds else replace(decision, holds=holds)


NOTHING_SHARED = PartitionShare(None, "")


class _SharedCap:
    """Use that a plan makes of shared limits, by whose turn it is."""

    def __init__(self, queue: SharedQueue, partition: str, effect: PlanEffect) -> None:
        self._plan = effect.plan
        self._queue, self._partition = queue, partition
        self._contested = queue.contested(partition)
        vacant = {
            view.id: view.offering.id
            for view in effect.now.instances
            if not (view.residents or view.pool or view.offering.purchase is Purchase.OWNED)
        }
        self._offerings: dict[InstanceId | int, OfferingId] = {}
        self._offerings.update((key, sold.id) for key, sold in effect.launched.items())
        self._offerings.update(vacant.items())
        self._freed: Counter[Limit] = Counter()
        for offering in vacant.values():
            self._freed.update(queue.room.limits_of(offering, None))
        self._before: RoomBefore = queue.before(partition, self._freed)
        self._taken: Counter[Limit] = Counter()
        self._used: set[InstanceId | int] = set()

    @property
    def takes_room(self) -> bool:
        """Whether the plan may take anything for which others wait."""
        return bool(self._offerings and self._contested)

    def rank(self, unit: Unit) -> int:
        """The place in the queue of task runs that are placed."""
        place = self._place(unit)
        return LAST if place is None else self._queue.turn(place)

    def _place(self, unit: Unit) -> int | None:
        ranks = self._queue.ranks
        return min((ranks[entry.run] for entry in unit.entries if entry.run in ranks), default=None)

    def refusal(self, unit: Unit) -> str:
        """Why a unit has to wait behind others."""
        if (limit := self._short(self._needs_of(unit), self.rank(unit))) is not None:
            return _turn(limit, self._queue.first(limit))
        return ""

    def take(self, unit: Unit) -> None:
        """Take what a unit needs."""
        self._taken.update(self._needs_of(unit))
        self._used.update(unit.places & self._offerings.keys())

    def _needs_of(self, unit: Unit) -> Counter[Limit]:
        new = (unit.places & self._offerings.keys()) - self._used
        offerings, place = [self._offerings[where] for where in new], self._place(unit)
        one_try = place is None or not self._queue.rests(place)
        return self._needs(offerings, unit.job.spec.owner, one_try=one_try)

    def too_many(self, members: Sequence[int]) -> set[int]:
        """New members of pools that others come before."""
        jobs: dict[JobId, int] = {}
        for unit, rank in zip(self._queue.waiting, range(len(self._queue.waiting)), strict=True):
            jobs.setdefault(unit.job.id, rank)
        ranks: dict[int, int] = {}
        for pool in self._plan.pools:
            lines = (line.jobs for line in self._plan.lines if pool.name in line.pools)
            first = min((jobs.get(job, LAST) for line in lines for job in line), default=LAST)
            ranks.update((key, first) for key in members if key in pool.members)
        gone = set[int]()
        if not ranks:
            return gone
        self._before = self._queue.before(self._partition, self._freed)
        for key in sorted(ranks, key=lambda it: (ranks[it], it)):
            if key not in self._offerings:
                continue
            needs = self._needs([self._offerings[key]], None)
            if self._short(needs, ranks[key]) is None:
                self._taken.update(needs)
                self._used.add(key)
            else:
                gone.add(key)
        return gone

    def _needs(
        self, offerings: Iterable[OfferingId], owner: str | None, *, one_try: bool = True
    ) -> Counter[Limit]:
        needs: Counter[Limit] = Counter()
        for offering in offerings:
            needs.update(self._queue.room.limits_of(offering, owner))
        for limit in needs if one_try else ():
            if limit.kind is LimitKind.CLOUD:
                needs[limit] = 1
        return needs

    def _short(self, needs: Counter[Limit], rank: int) -> Limit | None:
        """A limit of which too little is left by those who come before; others wait for it, too."""
        kept = self._before.kept(rank)
        for limit, needed in sorted(needs.items()):
            free = self._queue.room.free[limit] + self._freed[limit] - self._taken[limit]
            if limit in self._contested and needed > free - kept[limit]:
                return limit
        return None


class _Turns:
    """Why task runs of a partition wait behind others."""

    def __init__(self, queue: SharedQueue, partition: str) -> None:
        self._queue = queue
        self._first: dict[Limit, LimitUnit] = {}
        self._others: dict[Limit, int] = {}
        for rank, (unit, seat) in enumerate(zip(queue.waiting, queue.seats, strict=True)):
            for limit in () if queue.rests(rank) else {*seat.taken, *seat.lacking}:
                self._first.setdefault(limit, unit)
                if unit.partition != partition:
                    self._others.setdefault(limit, rank)

    def reason(self, run: RunId) -> str:
        """Why a task run waits; empty if not behind another partition's."""
        rank = self._queue.ranks.get(run)
        if rank is None:
            return ""
        for limit in sorted(self._queue.seats[rank].lacking):
            if self._others.get(limit, rank) < rank:
                return _turn(limit, self._first[limit])
        return ""


def _turn(limit: Limit, first: LimitUnit | None) -> str:
    if first is None:
        return f"waits for its turn at {limit}"
    priority = first.job.priority
    about = f" (priority {priority:,})" if priority else ""
    return (
        f"waits for its turn at {limit}: {first.job.id} of partition {first.partition} is next"
        f"{about}"
    )
