"""Memory of machines that stand still."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import JobId, Millis, RunId
from eva_wire.values.states import RunState


class StandstillMemory(Feature):
    """Memory of machines that stand still.

    Attributes:
        heard: When the agent last told for how long a task run that runs has run.
        credited: When a job was last credited with time at rest for it, and with how much.
        asked: Since when the agents of a job that seems to exceed its `max_duration` are asked.
        patient_until: Until when nothing is given up for its silence, since this machine slept.
    """

    def __init__(self) -> None:
        self.heard: dict[RunId, Millis] = {}
        self.credited: dict[JobId, tuple[Millis, int]] = {}
        self.asked: dict[JobId, Millis] = {}
        self.patient_until = Millis(0)

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Forget a job that ends."""
        self.credited.pop(job.id, None)
        self.asked.pop(job.id, None)

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Forget what was heard of a task run that runs no more."""
        if run.id not in self.heard or old is None:
            return
        if old.state is not run.state and run.state is not RunState.RUNNING:
            del self.heard[run.id]
