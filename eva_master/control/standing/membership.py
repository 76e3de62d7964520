"""Which instances stand in pools, and which are being drained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eva_master.model.ids import InstanceId, JobId
from eva_master.model.planning.standing import Line, LinePlace, Pool, full_name
from eva_master.model.records import Instance
from eva_master.model.states import LIVE


class Membership:
    """Follows the records of instances.

    Attributes:
        standing: Those that stay though they are empty.
        draining: Those that take no new task, as somebody decided; until they terminate.
        reasons: Why members of pools stay, by the pool's full name; as the last plans say.
        queued: Where each job stands in lines, by these plans.
    """

    def __init__(self) -> None:
        self.standing: dict[InstanceId, None] = {}
        self.draining: dict[InstanceId, None] = {}
        self.reasons: Mapping[str, str] = {}
        self.queued: Mapping[JobId, tuple[LinePlace, ...]] = {}
        self._stated: dict[
            str, tuple[Mapping[str, str], Mapping[JobId, tuple[LinePlace, ...]]]
        ] = {}

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
        reasons = {full_name(partition, pool.name): pool.reason for pool in pools}
        queued: dict[JobId, list[LinePlace]] = {}
        for line in lines:
            for place, job in enumerate(line.jobs):
                queued.setdefault(job, []).append(LinePlace(line, place))
        self._stated[partition] = reasons, {job: tuple(places) for job, places in queued.items()}
        self.reasons = {
            name: why for whys, _ in self._stated.values() for name, why in whys.items()
        }
        self.queued = {job: it for _, claims in self._stated.values() for job, it in claims.items()}

    def queue(self, partition: str, job: JobId, lines: Iterable[Line]) -> None:
        """A job stands in lines of a partition, too."""
        places = tuple(LinePlace(line, line.jobs.index(job)) for line in lines if job in line.jobs)
        reasons, claims = self._stated[partition]
        self._stated[partition] = reasons, {**claims, job: places}
        self.queued = {**self.queued, job: places}

    def unqueue(self, job: JobId) -> None:
        """A job stands in no line any more."""
        if job in self.queued:
            self._stated = {
                name: (reasons, {it: places for it, places in claims.items() if it != job})
                for name, (reasons, claims) in self._stated.items()
            }
            self.queued = {it: places for it, places in self.queued.items() if it != job}

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
