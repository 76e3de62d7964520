"""Memory of the queues at limits that partitions share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Job
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_wire.values.ids import JobId, Millis, OfferingId
from eva_wire.values.states import JobState

_MOST_TRIES = 3
"""Rounds in a row in which a partition leaves unused what is free for a job of its own, though it
asks for another round: then others may have it."""


@dataclass(frozen=True, slots=True)
class CloudRefusal:
    """Offerings that the cloud refused to launch, together.

    Attributes:
        at_ms: When it did so last.
        until_ms: From when on they may be tried again.
    """

    offerings: frozenset[OfferingId]
    at_ms: Millis
    until_ms: Millis


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """Data that earlier rounds of all partitions leave to the queues.

    Attributes:
        out: Jobs that cannot use what is free now.
        passed: Offerings that jobs left unused though some were free for them.
        refusals: Launches that the cloud refused.
        since: Time since which the next task of an array may start, for arrays with limited
            concurrency.
    """

    out: frozenset[JobId] = frozenset()
    passed: frozenset[tuple[JobId, OfferingId]] = frozenset()
    refusals: tuple[CloudRefusal, ...] = ()
    since: Mapping[JobId, Millis] = field(default_factory=dict)


NO_MEMORY = QueueMemory()


@dataclass(slots=True)
class SharedLimitsMemory(Feature):
    """Data about shared limits that is remembered from round to round.

    Attributes:
        passed: Offerings that jobs left unused though some were free for them, with the time.
        tries: Number of rounds in a row in which a job did so.
        left_unused: Jobs whose partitions have ever done so, and that have found no place since.
        refusals: Launches that the cloud refused, by offerings.
        since: See `QueueMemory`. over: Number of tasks of these arrays that had ended by then.
        open: Whether free room is kept for a job.
        queue: The queue at the last look. made: The data from which it was made.
    """

    passed: dict[tuple[JobId, OfferingId], Millis] = field(default_factory=dict)
    tries: Counter[JobId] = field(default_factory=Counter)
    left_unused: set[JobId] = field(default_factory=set)
    refusals: dict[frozenset[OfferingId], CloudRefusal] = field(default_factory=dict)
    since: dict[JobId, Millis] = field(default_factory=dict)
    over: dict[JobId, int] = field(default_factory=dict)
    open: bool = False
    queue: SharedQueue | None = None
    made: object = None

    def value(self, paused: Collection[JobId], now: Millis, kept_ms: int) -> QueueMemory:
        """The data on which the queues depend.

        Args:
            paused: Jobs for which nothing is bought now.
            now: The time.
            kept_ms: Time for which anything is remembered.
        """
        since = now - kept_ms
        if self.passed:
            self.passed = {name: at for name, at in self.passed.items() if at > since}
        if self.refusals:
            self.refusals = {
                name: refusal for name, refusal in self.refusals.items() if refusal.until_ms > since
            }
        return QueueMemory(
            frozenset(paused),
            frozenset(self.passed),
            tuple(self.refusals.values()),
            dict(self.since),
        )

    def refused(self, offerings: Iterable[OfferingId], now: Millis, until: Millis) -> None:
        """Note that the cloud refused to launch some offerings."""
        group = frozenset(offerings)
        self.refusals[group] = CloudRefusal(group, now, until)

    def doubts(self, offering: OfferingId) -> bool:
        """Whether an offering was refused lately, so that few launches are tried at a time."""
        return any(offering in group for group in self.refusals)

    def unused(
        self,
        units: Iterable[tuple[JobId, Iterable[OfferingId]]],
        placed: Collection[JobId],
        now: Millis,
        *,
        again: bool,
    ) -> bool:
        """Note for what a partition's round left unused what was free.

        Args:
            units: Jobs for which something was free and that have no place, with the offerings.
            placed: Jobs of which the round placed something.
            now: The time.
            again: Whether the partition asks for another round at once.

        Returns:
            Whether others may have it from now on.
        """
        before = len(self.passed)
        offered: dict[JobId, set[OfferingId]] = {}
        for job, offerings in units:
            if job not in placed:
                offered.setdefault(job, set()).update(offerings)
        for job, free in offered.items():
            self.tries[job] += 1
            if not again or self.tries[job] >= _MOST_TRIES:
                self.passed.update(((job, offering), now) for offering in free)
                self.left_unused.add(job)
                del self.tries[job]
        for job in placed:
            self.tries.pop(job, None)
            self.left_unused.discard(job)
        return len(self.passed) > before

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Forget a job that ends."""
        for passed in [entry for entry in self.passed if entry[0] == job.id]:
            del self.passed[passed]
        self.since.pop(job.id, None)
        self.over.pop(job.id, None)
        self.left_unused.discard(job.id)
        self.tries.pop(job.id, None)

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        """Plan if a job waits for limits no more: others may have what was free for it."""
        if self.open and old is not None and _leaves_queues(old, job):
            turn.plan_wanted = True


def _leaves_queues(old: Job, job: Job) -> bool:
    """Whether a job that waited for limits does so no more."""
    ends = job.state is JobState.ENDING is not old.state
    lacks = bool(job.missing_secrets) and not old.missing_secrets
    return ends or lacks or (job.suspension is not None and old.suspension is None)
