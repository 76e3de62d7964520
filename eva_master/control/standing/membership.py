"""Which instances stand in pools, and which are being drained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from eva_master.model.ids import InstanceId, JobId
from eva_master.model.planning.standing import Line, LinePlace, Pool, full_name
from eva_master.model.records import Instance
from eva_master.model.states import LIVE

Places = Mapping[JobId, tuple[LinePlace, ...]]
"""Where each job stands in lines."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What the last plan of a partition states.

    Attributes:
        queued: Where each job stands in these lines.
    """

    pools: tuple[Pool, ...]
    lines: tuple[Line, ...]
    queued: Places

    def without(self, job: JobId) -> Statement:
        """The same once a job stands in no line any more."""
        return replace(self, queued=_without(self.queued, job))


def _without(places: Places, job: JobId) -> Places:
    return {it: there for it, there in places.items() if it != job}


class Membership:
    """Follows the records of instances.

    Attributes:
        standing: Those that stay though they are empty.
        draining: Those that take no new task, as somebody decided; until they terminate.
        stated: The pools and lines of each partition, by its name, as the last plans say.
        reasons: Why members of pools stay, by the pool's full name; likewise.
        queued: Where each job stands in lines, by these plans.
    """

    def __init__(self) -> None:
        self.standing: dict[InstanceId, None] = {}
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
        """A task run has moved: of drained instances it has no view that tells."""
        for place in (old, new):
            if place is not None and place in self.draining:
                changed(place)

    def state(self, partition: str, pools: Iterable[Pool], lines: Iterable[Line]) -> None:
        """Take over what a plan of a partition states."""
        queued: dict[JobId, list[LinePlace]] = {}
        lines = tuple(lines)
        for line in lines:
            for place, job in enumerate(line.jobs):
                queued.setdefault(job, []).append(LinePlace(line, place))
        places = {job: tuple(there) for job, there in queued.items()}
        self.stated = {**self.stated, partition: Statement(tuple(pools), lines, places)}
        self.reasons = {
            full_name(name, pool.name): pool.reason
            for name, it in self.stated.items()
            for pool in it.pools
        }
        self.queued = {job: at for it in self.stated.values() for job, at in it.queued.items()}

    def queue(self, partition: str, job: JobId, lines: Iterable[Line]) -> None:
        """A job stands in lines of a partition, too; these are all of its lines now."""
        there = tuple(lines)
        places = tuple(LinePlace(line, line.jobs.index(job)) for line in there if job in line.jobs)
        before = self.stated[partition]
        stated = replace(before, lines=there, queued={**before.queued, job: places})
        self.stated = {**self.stated, partition: stated}
        self.queued = {**self.queued, job: places}

    def unqueue(self, job: JobId) -> None:
        """A job stands in no line any more."""
        if job in self.queued:
            self.stated = {name: it.without(job) for name, it in self.stated.items()}
            self.queued = _without(self.queued, job)

    def follow(self, instance: Instance) -> None:
        """An instance was added or replaced."""
        if instance.stands:
            self.standing[instance.id] = None
        else:
            self.standing.pop(instance.id, None)
        if instance.drain is not None and instance.state in LIVE:
            self.draining[instance.id] = None
        else:
            self.draining.pop(instance.id, None)
