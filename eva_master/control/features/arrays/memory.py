"""Memory of arrays at rest."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Job
from eva_wire.values.ids import JobId, Millis


class ArrayMemory(Feature):
    """Memory of arrays at rest.

    Attributes:
        resting: Since when no task of an array that is running has held an instance.
    """

    def __init__(self) -> None:
        self.resting: dict[JobId, Millis] = {}

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Forget a job that ends."""
        self.resting.pop(job.id, None)
