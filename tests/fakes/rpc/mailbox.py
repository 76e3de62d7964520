"""An inbox for tests of adapters that post events."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from typing import TypeVar

from eva_master.model.events import Event
from eva_wire.values.ids import Millis
from tests.fakes.patience import DEADLINE_S

AnyEvent = TypeVar("AnyEvent")


class Mailbox:
    """Implements `eva_master.ports.Inbox`; events are taken one at a time, and must come."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def post(self, event: Event) -> None:
        self._events.put(event)

    def wait(self, until: Millis | None) -> Sequence[Event]:
        raise NotImplementedError("tests take single events")

    def next(self) -> Event:
        """The next event; raises `queue.Empty` if none comes."""
        return self._events.get(timeout=DEADLINE_S)

    def expect(self, kind: type[AnyEvent]) -> AnyEvent:
        """The next event, which must be of this kind."""
        event = self.next()
        assert isinstance(event, kind)
        return event


class WallClock:
    """Implements `eva_master.ports.Clock`."""

    def now(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)
