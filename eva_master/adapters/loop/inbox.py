"""The control loop's inbox in a live master: any thread posts, the loop's thread waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from eva_master.model.events import Event
from eva_master.ports import Clock
from eva_wire.values.ids import Millis

_LOOK_S = 1.0
"""Longest time between two looks at the clocks."""


class LiveInbox:
    """A queue between threads, as `eva_master.ports.Inbox`.

    `SimpleQueue.put` takes no Python-level lock, so that even a signal handler may post.

    Args:
        clock: Decides when a wait is over.
        look: Called at least once a second while the loop waits; returns an event for it, if any.

    Attributes:
        received: Events handed to the loop since the start.
    """

    def __init__(self, clock: Clock, look: Callable[[], Event | None] = lambda: None) -> None:
        self._clock = clock
        self._look = look
        self._queue: SimpleQueue[Event] = SimpleQueue()
        self.received = 0

    def post(self, event: Event) -> None:
        """Append an event; never blocks, any thread may call it."""
        self._queue.put(event)

    @property
    def pending(self) -> bool:
        """Whether there are events that have not been waited for."""
        return not self._queue.empty()

    def wait(self, until: Millis | None) -> Sequence[Event]:
        """Block until an event has arrived or the time has come; for one thread only.

        Args:
            until: Milliseconds since the epoch; `None` waits for an event however long.

        Returns:
            Everything that has arrived, in order; empty when the time came first.
        """
        first = self._first(until)
        if first is None:
            return ()
        # Events that are posted from now on wait for the next call, so this one ends.
        batch = [first, *(self._queue.get_nowait() for _ in range(self._queue.qsize()))]
        self.received += len(batch)
        return batch

    def _first(self, until: Millis | None) -> Event | None:
        while True:
            if (news := self._look()) is not None:
                return news
            left_s = _LOOK_S if until is None else max(0, until - self._clock.now()) / 1000
            try:
                # The queue's own clock stands still while the machine sleeps.
                return self._queue.get(timeout=min(left_s, _LOOK_S))
            except Empty:
                if until is not None and self._clock.now() >= until:
                    return None
