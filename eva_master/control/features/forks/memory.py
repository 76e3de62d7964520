"""Memory of the epochs of forked jobs."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.forks.merging import MergeRound
from eva_master.model.records import Job
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId

ToldMerge = tuple[tuple[InstanceId, int, int | None], MergeRound, Millis]
"""Receiver (an attempt on an instance, in a session), message, and time of a fork's order."""


class ForkMemory(Feature):
    """Memory of forked jobs.

    Attributes:
        told_merges: The last order to each running fork in the epoch under way, by job.
    """

    def __init__(self) -> None:
        self.told_merges: dict[JobId, dict[RunId, ToldMerge]] = {}

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Forget a job that ends."""
        self.told_merges.pop(job.id, None)
