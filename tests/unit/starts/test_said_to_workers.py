"""What the control loop remembers of what it has said."""

from __future__ import annotations

from eva_master.control.alarms import Alarms
from eva_master.control.outbox import Outbox
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.ids import InstanceId, Millis, RunId

PLACE, RUN = InstanceId("i1"), RunId("a-1/0")


def test_what_was_said_of_an_attempt_is_forgotten_once_its_exit_is_written_down() -> None:
    """Else an owned node, which never goes, would hold on to every attempt that ever ran there."""
    outbox = Outbox(State(()), Settings(), Alarms())
    outbox.begin(Millis(0))

    def said(verb: str, attempt: int) -> bool:
        return not outbox.due(PLACE, (verb, PLACE, RUN, str(attempt)), 1_000)

    for verb in ("start", "stop"):
        for attempt in (1, 2):
            assert not said(verb, attempt)
    outbox.forget_task(PLACE, RUN, 1)
    assert [said(verb, 2) for verb in ("start", "stop")] == [True, True]
    assert [said(verb, 1) for verb in ("start", "stop")] == [False, False]
