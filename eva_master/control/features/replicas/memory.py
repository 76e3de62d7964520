"""Memory of arrays whose late tasks get extra runs."""

from __future__ import annotations

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.features.replicas import late
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.job import Stragglers
from eva_master.model.records import TaskRun
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import RunState


class ReplicaMemory(Feature):
    """Memory of arrays whose late tasks get extra runs.

    Attributes:
        looks_for_late: Arrays whose late tasks are looked for at intervals.
    """

    wakes = frozenset({Wake.LATE})

    def __init__(self) -> None:
        self.looks_for_late: set[JobId] = set()

    def started(self, turn: Turn) -> None:
        """Watch the task runs that run already."""
        for run in turn.state.runs.touched.values():
            if run.state is RunState.RUNNING:
                self._watch(turn, run)

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Watch a task run that begins to run."""
        if run.state is RunState.RUNNING and old is not None and old.state is not run.state:
            self._watch(turn, run)

    def _watch(self, turn: Turn, run: TaskRun) -> None:
        """Look later whether a task run that has begun to run is late."""
        job = turn.state.jobs[run.job]
        doubles = not job.is_gang and job.spec.array.stragglers is Stragglers.DUPLICATE
        if doubles and job.id not in self.looks_for_late:
            self._look(turn, job.id, late.LOOK_MS)

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Look for late tasks of an array, and set the time of the next look."""
        name = JobId(alarm.about)
        self.looks_for_late.discard(name)
        wait_ms = late.look_for_late(turn, name)
        if wait_ms is not None:
            self._look(turn, name, wait_ms)

    def _look(self, turn: Turn, job: JobId, wait_ms: int) -> None:
        self.looks_for_late.add(job)
        turn.alarms.at(Millis(turn.now + wait_ms), Alarm.late(job))
