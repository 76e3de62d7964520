"""Memory of gangs that have not started, or not all of whose members have a place."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.events import CheckpointsListed
from eva_master.model.records import Job
from eva_wire.values.ids import JobId, Millis, RunId


class GangMemory(Feature):
    """Memory of gangs that have not started, or not all of whose members have a place.

    Attributes:
        asked: The number of the question about a gang's checkpoints that has no answer yet.
        listed: Stored checkpoints of gangs at rest.
        half_placed: Time since which a gang holds instances for some members while the cloud
            refuses the rest.
        awaited_members: For gangs that wait to start, a member whose target was not ready.
    """

    def __init__(self) -> None:
        self.asked: dict[JobId, int] = {}
        self.listed: dict[JobId, CheckpointsListed] = {}
        self.half_placed: dict[JobId, Millis] = {}
        self.awaited_members: dict[JobId, RunId] = {}

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Forget a job that ends."""
        self.forget(turn, job.id)
        self.awaited_members.pop(job.id, None)
        self.half_placed.pop(job.id, None)

    def forget(self, turn: Turn, job: JobId) -> None:
        """Forget what was said of a job's checkpoints, since it is no longer true."""
        self.asked.pop(job, None)
        self.listed.pop(job, None)
        turn.outbox.forget(job)
