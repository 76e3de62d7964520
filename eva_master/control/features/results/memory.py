"""Memory of the jobs whose stored files others need, and of files that have just gone."""

from __future__ import annotations

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.features.results import removing
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.events import RemovalRequested, ResultsExpired, ResultsRemoved
from eva_master.model.records import Job
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB

_MOST_REMOVED = 10_000


class ResultsMemory(Feature):
    """Follows which ended jobs' files active jobs read: outputs as inputs, and checkpoints.

    Attributes:
        needed: By the job whose files are read, the active jobs that read them.
        removed: Jobs whose files went since the master started, the latest last. A submission that
            was checked before they went is refused by it.
    """

    wakes = frozenset({Wake.RESULTS})

    def __init__(self) -> None:
        self.needed: dict[JobId, dict[JobId, None]] = {}
        self.removed: dict[JobId, None] = {}

    def started(self, turn: Turn) -> None:
        """Follow the jobs of the journal, and have its removals ordered."""
        for job in turn.state.active:
            self._add(turn.state.jobs[job])
        turn.alarms.at(turn.now, Alarm(Wake.RESULTS))

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        """Follow a job that comes or ends."""
        if old is None:
            self._add(job)
        elif job.state in TERMINAL_JOB and old.state not in TERMINAL_JOB:
            for other in job.spec.sources:
                readers = self.needed.get(other, {})
                readers.pop(job.id, None)
                if not readers:
                    self.needed.pop(other, None)
                    if other in turn.state.removals.pending:
                        turn.alarms.at(turn.now, Alarm(Wake.RESULTS))

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Order removals that are due, and ask for jobs whose time is over."""
        removing.order(turn, self.needed)

    def forget(self, job: JobId) -> None:
        """Note that the files of a job have gone."""
        self.removed[job] = None
        if len(self.removed) > _MOST_REMOVED:
            del self.removed[next(iter(self.removed))]

    def _add(self, job: Job) -> None:
        for other in job.spec.sources:
            self.needed.setdefault(other, {})[job.id] = None


def follow(turn: Turn, event: RemovalRequested | ResultsRemoved | ResultsExpired) -> None:
    """Apply a command to remove files, or an answer about them."""
    memory = turn.memory(ResultsMemory)
    match event:
        case RemovalRequested():
            removing.requested(turn, event, memory.needed.get(event.job, {}))
        case ResultsRemoved():
            if removing.removed(turn, event):
                memory.forget(event.job)
        case ResultsExpired():
            removing.expired(turn, event)
