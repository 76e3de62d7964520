"""Virtual time: a clock that jumps from one thing that happens to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count

from eva_master.model.events import Event
from eva_master.model.ids import Millis


class Timeline:
    """A clock and an agenda; what is due at the same time happens in the order it was entered.

    Args:
        start: Milliseconds since the epoch at which the simulation begins.
    """

    def __init__(self, start: Millis = Millis(0)) -> None:
        self._now = start
        self._agenda: list[tuple[Millis, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> Millis:
        """The virtual time."""
        return self._now

    def after(self, delay_ms: int, happens: Callable[[], None]) -> None:
        """Enter something into the agenda."""
        when = Millis(self._now + max(0, delay_ms))
        heapq.heappush(self._agenda, (when, next(self._order), happens))

    def next(self) -> Millis | None:
        """When the next thing happens."""
        return self._agenda[0][0] if self._agenda else None

    def advance(self) -> None:
        """Go to the next thing on the agenda and let it happen."""
        when, _, happens = heapq.heappop(self._agenda)
        self._now = max(self._now, when)
        happens()

    def sleep_until(self, when: Millis) -> None:
        """Let time pass up to `when`, with nothing happening."""
        self._now = max(self._now, when)


class VirtualInbox:
    """An inbox whose waiting makes virtual time pass."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._pending: list[Event] = []

    def post(self, event: Event) -> None:
        """Append an event."""
        self._pending.append(event)

    @property
    def idle(self) -> bool:
        """Whether nothing has arrived, and nothing is on the agenda that might post anything."""
        return not self._pending and self._timeline.next() is None

    def clear(self) -> None:
        """Lose what has arrived, as a process does when it dies."""
        self._pending.clear()

    def wait(self, until: Millis | None) -> Sequence[Event]:
        """Let things happen until one of them posts an event, or until the time has come.

        What happens at the same time is heard of together. Returns at once, with nothing, when
        nothing will ever happen any more.
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
