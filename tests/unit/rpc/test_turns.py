"""When the control loop of a live master ends."""

from __future__ import annotations

from threading import Event as Flag

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.loop.turns import take_turns
from eva_master.model.events import ClosingDown, Event, Tick


def test_what_came_before_the_end_was_asked_for_is_dealt_with() -> None:
    inbox, stopping, seen = LiveInbox(SystemClock()), Flag(), list[Event]()

    def step() -> None:
        seen.extend(inbox.wait(None))
        if len(seen) == 1:
            # While this turn is written down, the last instance goes, and the master stops.
            inbox.post(ClosingDown())
            stopping.set()
            inbox.post(Tick())

    inbox.post(Tick())
    take_turns(step, inbox, stopping)
    assert seen == [Tick(), ClosingDown(), Tick()]


def test_nothing_is_waited_for_once_the_end_is_asked_for() -> None:
    inbox, stopping = LiveInbox(SystemClock()), Flag()

    def step() -> None:
        inbox.wait(None)  # It would wait for ever for a second event.
        stopping.set()

    inbox.post(Tick())
    take_turns(step, inbox, stopping)
    assert not inbox.pending
