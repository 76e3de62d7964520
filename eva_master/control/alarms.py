"""Typed wake-ups: what is to be looked at again, and when."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from eva_master.control.settings import NEVER_MS
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId

_NEAR_MS = 60_000
"""A moment that is no further away is not looked at on the way."""


class Wake(StrEnum):
    """Purpose of an alarm; alarms of one moment ring in the order of these values."""

    AGAIN = "again"
    """A policy of a partition asked to plan again at this time."""
    AVAILABILITY = "availability"
    """An offering that was refused may be tried again."""
    BUDGET = "budget"
    """A party may have come to its limit of a month."""
    CAP = "cap"
    """A job with a cap may have come to it."""
    CATALOG = "catalog"
    """The cloud is to be asked what it sells."""
    DUE = "due"
    """The deadline of a job has come."""
    FORGET = "forget"
    """Records that ended long enough ago leave memory, at the end of any turn."""
    INSTANCE = "instance"
    JOB = "job"
    LATE = "late"
    """Tasks of an array may have run for too long by now."""
    PERIOD = "period"
    """The last round is a round period ago."""
    PROFILE = "profile"
    """A task run has had the time to report its first steps."""
    RESULTS = "results"
    """Files of ended jobs are to be removed, or may have been kept for long enough."""
    RESYNC = "resync"
    """All records are compared with the reports of cloud and workers."""
    ROUND = "round"
    """A plan that is wanted may be requested."""
    RUN = "run"


class Alarm(NamedTuple):
    """One wake-up.

    Attributes:
        wake: Purpose of the alarm.
        about: Id of the job, instance or task run; empty for a wake-up of the whole cluster.
    """

    wake: Wake
    about: str = ""

    @staticmethod
    def job(job: JobId) -> Alarm:
        """An alarm that has one job converged."""
        return Alarm(Wake.JOB, job)

    @staticmethod
    def late(job: JobId) -> Alarm:
        """An alarm for the check of an array's tasks that may be late."""
        return Alarm(Wake.LATE, job)

    @staticmethod
    def run(run: RunId) -> Alarm:
        """An alarm that has one task of an array converged."""
        return Alarm(Wake.RUN, run)

    @staticmethod
    def instance(instance: InstanceId) -> Alarm:
        """An alarm that has one instance converged."""
        return Alarm(Wake.INSTANCE, instance)

    @staticmethod
    def profile(run: RunId) -> Alarm:
        """An alarm that asks whether one task run reports steps."""
        return Alarm(Wake.PROFILE, run)


class Alarms:
    """The wake-ups that are set, by the time at which they ring."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, Alarm]] = []
        self._set: set[tuple[Millis, Alarm]] = set()

    def at(self, when: Millis, alarm: Alarm) -> None:
        """Set an alarm; one that would never ring is not kept."""
        if when < NEVER_MS and (when, alarm) not in self._set:
            self._set.add((when, alarm))
            heapq.heappush(self._heap, (when, alarm))

    def next(self) -> Millis | None:
        """Return when the next alarm rings, `None` if none is set."""
        return self._heap[0][0] if self._heap else None

    def ring(self, now: Millis) -> list[Alarm]:
        """Take the alarms whose time has come, the earliest first."""
        ringing = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            self._set.discard(entry)
            ringing.append(entry[1])
        return ringing


@dataclass(slots=True)
class SpendingWatch:
    """Looks at a sum that grows: after each change, and on the way to what is foreseen.

    Of the alarms that were set for it the earliest counts; one that rings after another is void.

    Attributes:
        alarm: Rings when the sum is to be looked at.
        next_ms: The time of the next look.
        free_ms: A change is not looked at earlier.
    """

    alarm: Alarm
    next_ms: Millis = Millis(NEVER_MS)
    free_ms: Millis = Millis(0)

    def look(self, alarms: Alarms, now: Millis) -> None:
        """Have a change looked at, now or as soon as it may be, however often this is asked."""
        self._at(alarms, max(now, self.free_ms))

    def foresee(self, alarms: Alarms, now: Millis, at_ms: Millis) -> None:
        """Have a moment looked at that is foreseen: then if it is near, else half-way.

        Shares of an instance shift as speeds are measured, and prices change: spending that is up
        to twice as fast from now on is stopped in time.
        """
        left_ms = at_ms - now
        self._at(alarms, at_ms if left_ms <= _NEAR_MS else Millis(now + left_ms // 2))

    def rings(self, now: Millis) -> bool:
        """Whether the sum is to be looked at now; that look is over then."""
        if now < self.next_ms:
            return False
        self.next_ms = Millis(NEVER_MS)
        return True

    def _at(self, alarms: Alarms, at_ms: Millis) -> None:
        if at_ms < self.next_ms:
            self.next_ms = at_ms
            alarms.at(at_ms, self.alarm)
