"""When simulated workers report progress."""

from __future__ import annotations

from typing import Protocol

from eva_master.model.events import Phase
from eva_master.simulation.agent import Agent
from eva_master.simulation.clock import Timeline
from eva_master.simulation.work import Attempt


class Reports(Protocol):
    """Decides when an attempt's progress is reported."""

    def began(self, agent: Agent, attempt: Attempt) -> None:
        """An attempt's program has started."""
        ...

    def changed(self, agent: Agent, attempt: Attempt) -> None:
        """An attempt that gets on does so at another speed, or in other company."""
        ...


class Periodic:
    """At fixed intervals from the start of the program, as real workers do.

    Args:
        timeline: The virtual time.
        every_ms: The interval.
    """

    def __init__(self, timeline: Timeline, every_ms: int) -> None:
        self._timeline = timeline
        self._every_ms = every_ms

    def began(self, agent: Agent, attempt: Attempt) -> None:
        """See `Reports.began`."""
        self._timeline.after(self._every_ms, lambda: self._report(agent, attempt))

    def changed(self, agent: Agent, attempt: Attempt) -> None:
        """Reports come as they come."""

    def _report(self, agent: Agent, attempt: Attempt) -> None:
        if agent.sample(attempt):
            self.began(agent, attempt)


class Telling:
    """Only those reports that tell the master's meters something new.

    A task that gets on as before has nothing to say. After a change there is one report with the
    next finished step, which opens a window, and one that closes it; after a start also one at the
    end of the warm-up. Reports come with the very step that they tell of, so that the windows are
    as exact as real ones of many reports.

    Args:
        timeline: The virtual time.
        window_ms: Of the master's meters.
    """

    def __init__(self, timeline: Timeline, window_ms: int) -> None:
        self._timeline = timeline
        self._window_ms = window_ms

    def began(self, agent: Agent, attempt: Attempt) -> None:
        """What the program resumes from, so that its first own step is known for one."""
        agent.sample(attempt)

    def changed(self, agent: Agent, attempt: Attempt) -> None:
        """See `Reports.changed`."""
        attempt.watch += 1
        warm_up = [self._window_ms // 2] if attempt.cold else []
        self._after(agent, attempt, [0, *warm_up, self._window_ms])

    def _after(self, agent: Agent, attempt: Attempt, waits: list[int]) -> None:
        """Report with the first step that is finished after the first wait, then the others."""
        now, work = self._timeline.now(), attempt.work
        if attempt.speed <= 0:
            return
        later = attempt.done(now) + waits[0] * attempt.speed
        due = work.done_at(work.steps(later) + 1)
        if due < work.total_ms:
            watch = attempt.watch
            delay = attempt.left_ms(due, now)
            self._timeline.after(delay, lambda: self._report(agent, attempt, waits, watch))

    def _report(self, agent: Agent, attempt: Attempt, waits: list[int], watch: int) -> None:
        if attempt.watch != watch or attempt.speed <= 0 or attempt.phase is not Phase.RUNNING:
            return
        if agent.sample(attempt):
            if len(waits) > 1:
                self._after(agent, attempt, waits[1:])
            else:
                attempt.cold = False
