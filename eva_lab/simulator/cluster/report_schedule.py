"""Decides when simulated workers report progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.work import SimulatedAttempt


class Reporter(Protocol):
    """A worker that can be asked to report how far its attempts are."""

    def sample(self, attempts: Sequence[SimulatedAttempt]) -> bool:
        """Report the progress of those attempts that run.

        Returns:
            Whether any of them runs.
        """
        ...


class Reports(Protocol):
    """Decides when an attempt's progress is reported."""

    def began(self, agent: Reporter, attempt: SimulatedAttempt) -> None:
        """Note that an attempt's program has started."""
        ...

    def changed(self, agent: Reporter, attempts: Sequence[SimulatedAttempt]) -> None:
        """Note that attempts now progress at another speed or beside other tasks."""
        ...


class Periodic:
    """Reports at fixed intervals from the start of the program, as real workers do.

    Args:
        timeline: The virtual time.
        every_ms: The interval.
    """

    def __init__(self, timeline: Timeline, every_ms: int) -> None:
        self._timeline = timeline
        self._every_ms = every_ms

    def began(self, agent: Reporter, attempt: SimulatedAttempt) -> None:
        """See `Reports.began`."""
        self._timeline.after(self._every_ms, lambda: self._report(agent, attempt))

    def changed(self, agent: Reporter, attempts: Sequence[SimulatedAttempt]) -> None:
        """Do nothing: reports are periodic."""

    def _report(self, agent: Reporter, attempt: SimulatedAttempt) -> None:
        if agent.sample([attempt]):
            self.began(agent, attempt)


class ReportSchedule:
    """Makes only those reports that tell the master's meters something new.

    A task whose speed does not change has nothing to report. When its co-located tasks or its speed
    change, one report opens a window at once and another closes it. After a start there is one with
    its first step and one at the end of the warm-up. The master measures the same as from reports
    every two seconds, since a simulated task keeps its speed exactly between changes.

    Args:
        timeline: The virtual time.
        window_ms: Measurement window of the master's meters.
    """

    _FIRST_MS = 100
    """Time from first progress to the first report of it."""

    def __init__(self, timeline: Timeline, window_ms: int) -> None:
        self._timeline = timeline
        self._window_ms = window_ms

    def began(self, agent: Reporter, attempt: SimulatedAttempt) -> None:
        """Report what the program resumes from, so that its first new step is recognised."""
        agent.sample([attempt])

    def changed(self, agent: Reporter, attempts: Sequence[SimulatedAttempt]) -> None:
        """See `Reports.changed`."""
        for attempt in attempts:
            attempt.watch += 1
        cold = [attempt for attempt in attempts if attempt.cold]
        warm = [attempt for attempt in attempts if not attempt.cold]
        if cold:
            half = self._window_ms // 2
            self._after(agent, cold, (self._FIRST_MS, half, self._window_ms))
        if warm:
            agent.sample(warm)
            self._after(agent, warm, (self._window_ms,))

    def _after(
        self, agent: Reporter, attempts: Sequence[SimulatedAttempt], waits: tuple[int, ...]
    ) -> None:
        watched = [(attempt, attempt.watch) for attempt in attempts]
        self._timeline.after(waits[0], lambda: self._report(agent, watched, waits[1:]))

    def _report(
        self,
        agent: Reporter,
        watched: Sequence[tuple[SimulatedAttempt, int]],
        waits: tuple[int, ...],
    ) -> None:
        due = [
            attempt for attempt, watch in watched if attempt.watch == watch and attempt.speed > 0
        ]
        if due and agent.sample(due):
            if waits:
                self._after(agent, due, waits)
            for attempt in due if not waits else ():
                attempt.cold = False
