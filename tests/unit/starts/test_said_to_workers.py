"""What the control loop remembers of what it has said."""

from __future__ import annotations

from eva_master.model.actions import ForgetTask, StartTask
from eva_master.model.events import (
    InstanceUp,
    Phase,
    RunReport,
    WorkerRegistered,
    WorkerReported,
)
from eva_wire.values.ids import Millis
from tests.unit.control.test_control_cloud import (
    FIRST,
    RUN,
    SIZE,
    ZONES,
    launched,
    machine,
    submitted,
)

LONG_MS = 10**9


def test_what_was_said_of_an_attempt_is_forgotten_once_its_exit_is_written_down() -> None:
    """Else an owned node, which never goes, would hold on to every attempt that ever ran there."""
    it = machine(worker_resend_ms=LONG_MS)
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    it.handle([InstanceUp(FIRST, Millis(10_000))], Millis(10_000))
    begun = it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(20_000))
    assert any(isinstance(one, StartTask) for one in begun)
    outbox = it._context.outbox
    assert not outbox.due(FIRST, ("start", RUN, "1"), LONG_MS)
    assert outbox.due(FIRST, ("start", RUN, "2"), LONG_MS)
    exited = RunReport(RUN, 1, Phase.EXITED, exit_code=1)
    ended = it.handle([WorkerReported(FIRST, 1, (exited,))], Millis(50_000))
    assert ForgetTask(FIRST, RUN, 1) in ended
    assert outbox.due(FIRST, ("start", RUN, "1"), LONG_MS)
    assert not outbox.due(FIRST, ("start", RUN, "2"), LONG_MS)
