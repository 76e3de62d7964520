"""Measurements under way, which are booked and learned from when task runs change."""

from __future__ import annotations

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.measure import learn, ledger
from eva_master.control.measure.delays import LatencyMeters
from eva_master.control.measure.throughput import Meters
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import Millis, RunId
from eva_wire.values.states import RunState

_SILENT_WINDOWS = 3
"""A task that has reported no step for this many windows is assumed to report none, ever."""


class MeasuringMemory(Feature):
    """Meters of task runs; accounts of their instances are booked before they change.

    Args:
        window_ms: Length of a window of throughput.

    Attributes:
        rates: Meters of throughput.
        latencies: Meters of starts and stops.
    """

    wakes = frozenset({Wake.PROFILE})

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self.rates, self.latencies = Meters(window_ms), LatencyMeters()

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Learn from a job that ends."""
        learn.from_job_end(turn.state, job, turn.now)

    def run_changes(self, turn: Turn, old: TaskRun, run: TaskRun) -> None:
        """Book what the task run's instances cost so far; windows begin anew there."""
        for place in dict.fromkeys((old.instance, run.instance)):
            if place is not None:
                ledger.book(turn.state, place, turn.now)
                self.rates.restart(turn.state, place)

    def instance_changed(self, _turn: Turn, old: Instance | None, instance: Instance) -> None:
        """Have meters follow the set-up of an instance."""
        if old is not None and old.state is not instance.state:
            self.latencies.instance_changed(instance)

    def started(self, turn: Turn) -> None:
        """Watch the task runs that run already."""
        for run in turn.state.runs.touched.values():
            if run.state is RunState.RUNNING:
                self._watch(turn, run)

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Have clocks and meters follow a task run into another state."""
        after = run.state
        if old is None or old.state is after:
            return
        state, now = turn.state, turn.now
        if after is RunState.RUNNING:
            self.rates.began(run.id)
            self._watch(turn, run)
        else:
            self.rates.ended(run.id)
        latency = self.latencies.changed(old, run, now)
        if latency is not None:
            learn.from_latency(state, run, latency, now)
        if after is RunState.SUCCEEDED:
            learn.from_end(state, run)
            if turn.settings.profile and old.instance is not None:
                learn.from_silent_end(state, run, old.instance, now)

    def _watch(self, turn: Turn, run: TaskRun) -> None:
        """Look later whether a task run that has begun to run reports steps."""
        if turn.settings.profile and learn.unprofiled(turn.state, run):
            later = Millis(turn.now + _SILENT_WINDOWS * self._window_ms)
            turn.alarms.at(later, Alarm.profile(run.id))

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Learn from a task run that has reported no step for several windows."""
        run = turn.state.runs.get(RunId(alarm.about))
        since = Millis(turn.now - _SILENT_WINDOWS * self._window_ms)
        if run is not None and learn.from_silence(turn.state, run, since, turn.now):
            turn.plan_wanted = True
