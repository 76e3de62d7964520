"""Virtual time: a clock that jumps from one scheduled action to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count

from eva_master.model.events import Event
from eva_wire.values.ids import Millis


class Timer:
    """An action to come.

    Attributes:
        happens: The action; `None` once it has begun or is cancelled.
    """

    __slots__ = ("happens",)

    def __init__(self, happens: Callable[[], None]) -> None:
        self.happens: Callable[[], None] | None = happens


class Timeline:
    """A clock and a queue of actions. Actions due at the same time run in the order of entry.

    Cancelled ones are forgotten before they are half of the queue.

    Args:
        start: Milliseconds since the epoch at which the simulation begins.
    """

    def __init__(self, start: Millis = Millis(0)) -> None:
        self._now = start
        self._agenda: list[tuple[Millis, int, Timer]] = []
        self._cancelled = 0
        self._order = count()

    def now(self) -> Millis:
        """The virtual time in milliseconds since the epoch."""
        return self._now

    def after(self, delay_ms: int, happens: Callable[[], None]) -> Timer:
        """Schedule an action after a delay in milliseconds."""
        when, timer = Millis(self._now + max(0, delay_ms)), Timer(happens)
        heapq.heappush(self._agenda, (when, next(self._order), timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        """Have an action not happen; no effect if it has begun."""
        if timer.happens is None:
            return
        timer.happens = None
        self._cancelled += 1
        if self._cancelled * 2 > len(self._agenda):
            self._agenda = [entry for entry in self._agenda if entry[2].happens is not None]
            heapq.heapify(self._agenda)
            self._cancelled = 0

    def next(self) -> Millis | None:
        """The time of the next action; `None` if there is none."""
        while self._agenda and self._agenda[0][2].happens is None:
            heapq.heappop(self._agenda)
            self._cancelled -= 1
        return self._agenda[0][0] if self._agenda else None

    def advance(self) -> None:
        """Advance the clock to the next action and run it; there must be one."""
        self.next()
        when, _, timer = heapq.heappop(self._agenda)
        happens, timer.happens = timer.happens, None
        self._now = max(self._now, when)
        assert happens is not None
        happens()

    def sleep_until(self, when: Millis) -> None:
        """Advance the clock to `when` without running any action."""
        self._now = max(self._now, when)


class VirtualInbox:
    """An inbox that advances virtual time while it waits."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._pending: list[Event] = []

    def post(self, event: Event) -> None:
        """See `eva_master.ports.Inbox.post`."""
        self._pending.append(event)

    @property
    def idle(self) -> bool:
        """Whether no event has arrived and no action is scheduled that might post one."""
        return not self._pending and self._timeline.next() is None

    def clear(self) -> None:
        """Drop all events that have arrived, as a process does when it dies."""
        self._pending.clear()

    def wait(self, until: Millis | None) -> Sequence[Event]:
        """Run actions until one of them posts an event, or until the given time has come.

        Events of the same time are returned together. Returns an empty list at once when no action
        is left.
        """
        timeline = self._timeline
        while not self._pending:
            upcoming = timeline.next()
            if upcoming is None or (until is not None and upcoming > until):
                if until is not None:
                    timeline.sleep_until(until)
                break
            timeline.advance()
        while self._pending and timeline.next() == timeline.now():
            timeline.advance()
        taken, self._pending = self._pending, []
        return taken
