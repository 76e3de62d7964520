"""Which instances stand in pools, and which are being drained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from eva_master.model.planning.standing import Line, LinePlace, Pool, full_name
from eva_master.model.records import Instance
from eva_wire.values.ids import InstanceId, JobId
from eva_wire.values.states import LIVE

Places = Mapping[JobId, tuple[LinePlace, ...]]
"""Where each job stands in lines."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Pools and lines that the last plan of a partition states.

    Attributes:
        queued: The places of each job in these lines.
    """

    pools: tuple[Pool, ...]
    lines: tuple[Line, ...]
    queued: Places

    def without(self, job: JobId) -> Statement:
        """A copy of the statement without a job in its lines."""
        return replace(self, queued=_without(self.queued, job))


def _without(places: Places, job: JobId) -> Places:
    return {name: entries for name, entries in places.items() if name != job}


class Membership:
    """Pools and lines of all partitions, and the instances that stand or drain.

    Attributes:
        standing: Instances that stay though they are empty.
        bought: Members of pools that are not owned: they go when no pool has them any more.
        draining: Instances that take no new task by an order or a plan, until they terminate.
        stated: The pools and lines of each partition, by its name, as stated by the last plans.
        reasons: Reasons for which members of pools stay, by the pool's full name.
        queued: The places of each job in lines of these plans.
    """

    def __init__(self) -> None:
        self.standing: dict[InstanceId, None] = {}
        self.bought: dict[InstanceId, None] = {}
        self.draining: dict[InstanceId, None] = {}
        self.stated: Mapping[str, Statement] = {}
        self.reasons: Mapping[str, str] = {}
        self.queued: Places = {}

    def moved(
        self,
        old: InstanceId | None,
        new: InstanceId | None,
        changed: Callable[[InstanceId], None],
    ) -> None:
        """Note the move of a task run; a drained instance has no view that shows the move."""
        for place in (old, new):
            if place is not None and place in self.draining:
                changed(place)

    def state(self, partition: str, pools: Iterable[Pool], lines: Iterable[Line]) -> None:
        """Store the pools and lines that a plan of a partition states."""
        queued: dict[JobId, list[LinePlace]] = {}
        lines = tuple(lines)
        for line in lines:
            for place, job in enumerate(line.jobs):
                queued.setdefault(job, []).append(LinePlace(line, place))
        places = {job: tuple(entries) for job, entries in queued.items()}
        self.stated = {**self.stated, partition: Statement(tuple(pools), lines, places)}
        self.reasons = {
            full_name(name, pool.name): pool.reason
            for name, statement in self.stated.items()
            for pool in statement.pools
        }
        self.queued = {
            job: at for statement in self.stated.values() for job, at in statement.queued.items()
        }

    def queue(self, partition: str, job: JobId, lines: Iterable[Line]) -> None:
        """Add a job to lines of a partition; `lines` are all of the partition's lines now."""
        new_lines = tuple(lines)
        places = tuple(
            LinePlace(line, line.jobs.index(job)) for line in new_lines if job in line.jobs
        )
        before = self.stated[partition]
        stated = replace(before, lines=new_lines, queued={**before.queued, job: places})
        self.stated = {**self.stated, partition: stated}
        self.queued = {**self.queued, job: places}

    def unqueue(self, job: JobId) -> None:
        """Remove a job from all lines."""
        if job in self.queued:
            self.stated = {name: statement.without(job) for name, statement in self.stated.items()}
            self.queued = _without(self.queued, job)

    def follow(self, instance: Instance) -> None:
        """An instance was added or replaced."""
        if instance.stands:
            self.standing[instance.id] = None
            if not instance.owned:
                self.bought[instance.id] = None
        else:
            self.standing.pop(instance.id, None)
            self.bought.pop(instance.id, None)
        if instance.drain is not None and instance.state in LIVE:
            self.draining[instance.id] = None
        else:
            self.draining.pop(instance.id, None)
