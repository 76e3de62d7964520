"""Task runs of other partitions that are suspended for whoever is next at a shared limit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from eva_master.model.catalog import Purchase
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.values import by_id
from eva_master.packing.deadlines.sparing import would_be_late
from eva_master.packing.shared_limits.limit import Limit, LimitKind, LimitUnit
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_master.packing.shared_limits.seating import LimitSeating
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.packing.valuation.migration_cost import stop_cost
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, RunId

_MOST_UNITS = 16
"""For so many units others are suspended in one round, the most urgent first."""
_HELD = (LimitKind.OFFERING, LimitKind.INSTANCES, LimitKind.USER)
"""Limits of which an instance that goes gives something back at once."""


@dataclass(frozen=True, slots=True)
class VictimSwap:
    """Task runs that are suspended together, and the unit that gets their room.

    Attributes:
        runs: Task runs of one instance, with the other members of their gangs.
        unit: The unit that comes instead.
    """

    runs: tuple[RunId, ...]
    unit: LimitUnit


class LimitVictimSearch:
    """Finds instances of other partitions whose tasks make way for the next unit.

    Args:
        snapshot: The cluster.
        queue: The queue of waiting units.
        partition: The partition of these units.
        vacating: Instances that are released as soon as their tasks have stopped.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        queue: SharedQueue,
        partition: str,
        vacating: Collection[InstanceId],
    ) -> None:
        self._queue, self._partition, self._now = queue, partition, snapshot.now_ms
        self._valuation = JobValuation(snapshot.catalog, snapshot.standalone)
        self._jobs = by_id(snapshot.jobs)
        self._runs = by_id(snapshot.runs)
        self._on: defaultdict[InstanceId, list[RunView]] = defaultdict(list)
        for run in snapshot.runs:
            if run.instance is not None:
                self._on[run.instance].append(run)
        self._instances = [view for view in snapshot.instances if self._may_go(view)]
        self._freed: Counter[Limit] = Counter()
        for view in snapshot.instances:
            if view.id in vacating:
                self._freed.update(self._limits(view))
        self._gone = set[InstanceId](vacating)

    def found(self, tried: Collection[JobId]) -> Iterator[VictimSwap]:
        """Task runs that make way, for the partition's units one after the other.

        Args:
            tried: Jobs that left free room unused; no task is suspended for these.
        """
        ours = (
            (unit, seat)
            for unit, seat in zip(self._queue.waiting, self._queue.seats, strict=True)
            if seat.lacking and unit.partition == self._partition and unit.job.id not in tried
        )
        for (unit, seat), _ in zip(ours, range(_MOST_UNITS), strict=False):
            limits = {limit for limit in seat.lacking if limit.kind in _HELD}
            if limits and not self._enough(unit, self._freed):
                yield from self._for_unit(unit, limits)

    def _for_unit(self, unit: LimitUnit, limits: AbstractSet[Limit]) -> Iterator[VictimSwap]:
        """Task runs that yield for a unit, the least urgent and cheapest first; none if in vain."""
        options = [
            (price, view)
            for view in self._instances
            if view.id not in self._gone
            and not limits.isdisjoint(self._limits(view))
            and (price := self._price(view, unit)) is not None
        ]
        options.sort(key=lambda it: (it[0], it[1].id))
        chosen: list[InstanceView] = []
        freed = self._freed.copy()
        for _, view in options:
            if self._enough(unit, freed):
                break
            chosen.append(view)
            freed.update(self._limits(view))
        if not self._enough(unit, freed):
            return
        for view in tuple(chosen[:-1]):  # Cheaper ones may not be needed after all.
            rest = freed - Counter(self._limits(view))
            if self._enough(unit, rest):
                chosen.remove(view)
                freed = rest
        self._freed = freed
        for view in chosen:
            self._gone.add(view.id)
            yield VictimSwap(tuple(sorted(self._with_mates(view))), unit)

    def _enough(self, unit: LimitUnit, freed: Counter[Limit]) -> bool:
        """Whether a unit has room once so much is free, behind all who come before it."""
        seating = LimitSeating(self._queue.room, freed=freed)
        for other in self._queue.waiting:
            seat = seating.seat(other)
            if other is unit:
                return seat.complete
        return False

    def _price(self, view: InstanceView, unit: LimitUnit) -> tuple[int, int, int] | None:
        """The highest priority, cost and number of those who would stop; `None` if they may not."""
        runs = [self._runs[name] for name in self._with_mates(view)]
        groups: defaultdict[JobId, list[RunView]] = defaultdict(list)
        priority = 0
        for run in runs:
            job = self._jobs[run.job]
            if job.priority >= unit.job.priority or not run.running or run.pinned:
                return None
            if would_be_late(job, unit.runs, self._now):
                return None
            priority = max(priority, job.priority)
            groups[job.id].append(run)
        cost = sum(
            stop_cost(self._jobs[name], group, self._valuation) for name, group in groups.items()
        )
        return priority, cost, len(runs)

    def _with_mates(self, view: InstanceView) -> set[RunId]:
        """The task runs on an instance, with all members of their gangs."""
        names = set[RunId]()
        for run in self._on[view.id]:
            job = self._jobs[run.job]
            names.update(job.runs if job.spec.kind is JobKind.GANG else (run.id,))
        return names

    def _limits(self, view: InstanceView) -> tuple[Limit, ...]:
        """Limits of which something is free once an instance is gone."""
        limits_of, offering = self._queue.room.limits_of, view.offering.id
        limits = dict.fromkeys(limits_of(offering, None))
        for owner in {self._jobs[run.job].spec.owner for run in self._on[view.id]}:
            limits.update(dict.fromkeys(limits_of(offering, owner)))
        return tuple(limits)

    def _may_go(self, view: InstanceView) -> bool:
        """Whether an instance is another partition's and goes once it is empty."""
        owned = view.offering.purchase is Purchase.OWNED
        others = self._queue.home(view.partition) != self._partition
        return others and not owned and not view.pool and bool(view.residents)
