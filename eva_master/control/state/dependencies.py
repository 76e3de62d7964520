"""Which jobs wait for which, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from eva_master.control.state.derived.priorities import Priorities
from eva_master.model.planning.reasons import Handed
from eva_master.model.records import Ended, Job, Outcome
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB, JobState


class Dependencies:
    """The jobs that wait for others, and the jobs that they wait for.

    Jobs that are over have no entries, and the end of a job costs time in proportion to the jobs
    that wait for it. An unknown job is treated as one that ended long ago as the waiting jobs
    require: a job that ends otherwise takes them along in the same commit.

    Args:
        changed: Called with each job whose priority changes through the jobs that wait for it.
        handed: The priorities that jobs have from others, above their own; kept up to date.
    """

    def __init__(self, changed: Callable[[JobId], None], handed: dict[JobId, Handed]) -> None:
        self._left: dict[JobId, dict[JobId, None]] = {}
        """The jobs that have not ended, of those each waiting job waits for."""
        self._followers: dict[JobId, dict[JobId, None]] = {}
        """The jobs that wait for each job that has not ended."""
        self._unmet: dict[JobId, Ended] = {}
        """The first job that did not succeed though it had to, by the waiting job."""
        self._only_ended: dict[JobId, frozenset[JobId]] = {}
        """The jobs that only have to end, by the waiting job; no entry without any."""
        self._decided: dict[JobId, None] = {}
        self._told_of_change = changed
        self._priorities_changed = False
        self._priorities = Priorities(self.left, self._priority_changed, handed)
        self.handed = handed

    def __contains__(self, job: JobId) -> bool:
        return job in self._left

    def __len__(self) -> int:
        """Number of waiting jobs."""
        return len(self._left)

    def left(self, job: JobId) -> Collection[JobId]:
        """The jobs that a job still waits for."""
        return self._left.get(job, ())

    def unmet(self, job: JobId) -> Ended | None:
        """The end of a job that makes another job's wait futile; `None` without any."""
        return self._unmet.get(job)

    def take_decided(self) -> Collection[JobId]:
        """Take the jobs that have nothing left to wait for, or wait in vain."""
        taken, self._decided = self._decided, {}
        return taken

    def priority(self, job: Job) -> int:
        """The priority that a job has: its own, or a higher one of a job that waits for it."""
        handed = self.handed.get(job.id)
        return job.spec.priority if handed is None else handed.priority

    def take_priority_change(self) -> bool:
        """Whether the priority of some job became another one since this was called last."""
        taken, self._priorities_changed = self._priorities_changed, False
        return taken

    def settle_priorities(self) -> None:
        """Have all jobs know of priorities that were handed on since this was called last.

        A change is noted when it is made, so no more is to be asked for on account of this.
        """
        changed = self._priorities_changed
        self._priorities.settle()
        self._priorities_changed = changed

    def _priority_changed(self, job: JobId) -> None:
        self._priorities_changed = True
        self._told_of_change(job)

    def follow(self, job: Job, jobs: Mapping[JobId, Job]) -> None:
        """Take in the record of a job that was added or replaced.

        Args:
            job: The record.
            jobs: All that are known, those that it depends on among them.
        """
        over = job.state in TERMINAL_JOB
        if job.id in self._left:
            if over or not job.waits:
                self._priorities.stop(job.id)
                self._forget(job.id)
        elif job.waits and not over:
            self._add(job, jobs)
        if over:
            self._priorities.end(job.id)
        else:
            self._priorities.follow(job, waits=job.id in self._left)
        if over and job.id in self._followers:
            self._ended(Ended.of(job))

    def _add(self, job: Job, jobs: Mapping[JobId, Job]) -> None:
        remaining = self._left[job.id] = {}
        if job.spec.stage.only_ended:
            self._only_ended[job.id] = frozenset(job.spec.stage.only_ended)
        for name in job.spec.stage.depends_on:
            other = jobs.get(name)
            if other is None:
                continue
            if other.state not in TERMINAL_JOB:
                remaining[name] = None
                self._followers.setdefault(name, {})[job.id] = None
            elif other.state is not JobState.SUCCEEDED and self._must_succeed(job.id, name):
                self._unmet.setdefault(job.id, Ended.of(other))
        self._decide(job.id)

    def _ended(self, end: Ended) -> None:
        for waiting in self._followers.pop(end.job):
            del self._left[waiting][end.job]
            if end.outcome is not Outcome.SUCCEEDED and self._must_succeed(waiting, end.job):
                self._unmet.setdefault(waiting, end)
            self._decide(waiting)

    def _must_succeed(self, waiting: JobId, other: JobId) -> bool:
        return other not in self._only_ended.get(waiting, ())

    def _decide(self, job: JobId) -> None:
        if not self._left[job] or job in self._unmet:
            self._decided[job] = None

    def _forget(self, job: JobId) -> None:
        self._unmet.pop(job, None)
        self._only_ended.pop(job, None)
        self._decided.pop(job, None)
        for name in self._left.pop(job):
            followers = self._followers[name]
            del followers[job]
            if not followers:
                del self._followers[name]
