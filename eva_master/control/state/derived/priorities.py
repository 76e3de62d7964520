"""Priorities of jobs that more urgent ones wait for.

A job that waits for others hands its priority to them while it waits, and so do these to those that
they wait for. All of them are jobs of one owner, and the one that is urgent was admitted with its
priority: its submitter might as well have stated that of the others. One that its user has
suspended would not run, so it hands on nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from heapq import heappop, heappush

from eva_master.model.planning.reasons import Handed
from eva_master.model.records import Job
from eva_wire.values.ids import JobId, job_order
from eva_wire.values.states import JobState

_AT_ONCE = 100
"""A change is handed on to so many jobs at once, and to the rest with the next plan."""


class _Offers:
    """The priorities that several jobs hand to one, the best of them at hand."""

    def __init__(self) -> None:
        self._counts: Counter[Handed] = Counter()
        self._heap: list[tuple[int, tuple[int, str], Handed]] = []

    def add(self, offer: Handed) -> None:
        self._counts[offer] += 1
        if self._counts[offer] == 1:
            heappush(self._heap, (-offer.priority, job_order(offer.by), offer))

    def remove(self, offer: Handed) -> None:
        self._counts[offer] -= 1
        if not self._counts[offer]:
            del self._counts[offer]

    def best(self) -> Handed | None:
        """The highest priority, of equal ones that of the job which was submitted first."""
        while self._heap and self._heap[0][2] not in self._counts:
            heappop(self._heap)
        return self._heap[0][2] if self._heap else None


class Priorities:
    """Follows which jobs have a higher priority than their own since others wait for them.

    A change costs as much as there are jobs that it concerns, but no more than a hundred: `settle`
    has the rest know of all changes since it was called last, each job once.

    Args:
        left: The jobs that a job waits for.
        changed: Is told each job whose priority is another one now.
        handed: The priorities that jobs have from others, above their own; kept up to date.
    """

    def __init__(
        self,
        left: Callable[[JobId], Collection[JobId]],
        changed: Callable[[JobId], None],
        handed: dict[JobId, Handed],
    ) -> None:
        self.handed = handed
        self._own: dict[JobId, Handed] = {}
        """The priorities of jobs that have not ended, but for those of 0."""
        self._offers: dict[JobId, _Offers] = {}
        self._given: dict[JobId, Handed] = {}
        """By job, the priority that it hands on at present."""
        self._left, self._changed = left, changed
        self._due: set[JobId] = set()
        """Jobs whose new priority is not yet known to those that they wait for."""
        self._due_order: list[tuple[int, str]] = []
        self._waiting: set[JobId] = set()
        """Jobs that wait for others and hand on what they have."""

    def __len__(self) -> int:
        """How much is held of any kind."""
        held = len(self.handed) + len(self._own) + len(self._offers)
        return held + len(self._given) + len(self._waiting) + len(self._due)

    def follow(self, job: Job, *, waits: bool) -> None:
        """Take in the record of a job that has not ended; `waits`: for what `left` says."""
        if job.spec.priority:
            self._own[job.id] = Handed(job.spec.priority, job.id)
        if waits and job.suspension is None and job.state is not JobState.ENDING:
            self._waiting.add(job.id)
        else:
            self._waiting.discard(job.id)
        self._hand_on(job.id)

    def stop(self, job: JobId) -> None:
        """A job is about to wait for nothing more."""
        self._waiting.discard(job)
        self._hand_on(job)

    def end(self, job: JobId) -> None:
        """A job is over, and waits no more."""
        for held in (self.handed, self._own, self._offers):
            held.pop(job, None)

    def _hand_on(self, job: JobId) -> None:
        """Have those that a job waits for know what it hands on now, and so on."""
        self._tell(job)
        self._pass(_AT_ONCE)

    def settle(self) -> None:
        """Hand on all that was left for later."""
        self._pass(None)

    def _put(self, job: JobId) -> None:
        if job not in self._due:
            self._due.add(job)
            number, name = job_order(job)
            heappush(self._due_order, (-number, name))

    def _pass(self, most: int | None) -> None:
        """Have so many jobs hand on what they have, first those that were submitted last.

        Jobs wait for earlier ones, so each does it once.

        Args:
            most: `None` for all of them.
        """
        while self._due_order and most != 0:
            most = None if most is None else most - 1
            name = JobId(heappop(self._due_order)[1])
            self._due.discard(name)
            self._tell(name)

    def _tell(self, job: JobId) -> None:
        """Have those that a job waits for know what it hands on now."""
        before, now = self._given.get(job), self._present(job)
        if now == before:
            return
        if now is None:
            del self._given[job]
        else:
            self._given[job] = now
        for other in self._left(job):
            offers = self._offers.setdefault(other, _Offers())
            if before is not None:
                offers.remove(before)
            if now is not None:
                offers.add(now)
            if self._settle(other):
                self._put(other)

    def _present(self, job: JobId) -> Handed | None:
        if job not in self._waiting:
            return None
        return self.handed.get(job) or self._own.get(job)

    def _settle(self, job: JobId) -> bool:
        """Note the highest priority that a job is handed; returns whether that is another one."""
        best, own = self._offers[job].best(), self._own.get(job)
        if best is None:
            del self._offers[job]
        now = best if best is not None and (own is None or best.priority > own.priority) else None
        if now == self.handed.get(job):
            return False
        if now is None:
            del self.handed[job]
        else:
            self.handed[job] = now
        self._changed(job)
        return True
