"""Memory of recent failures of tasks and instances."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Instance, Job
from eva_wire.values.ids import InstanceId, JobId, RunId
from eva_wire.values.states import InstanceState


class FailureMemory(Feature):
    """Memory of recent failures.

    Attributes:
        early: A hash of how each task run last failed soon after its start, by job.
        excused: Number of failures in a row, of a gang or of each task of an array, that were their
            instances' fault, by job. A gang's are kept under its first task.
        faults: Jobs of the failures in a row on an instance that were its fault.
    """

    def __init__(self) -> None:
        self.early: dict[JobId, dict[RunId, int]] = {}
        self.excused: dict[JobId, dict[RunId, int]] = {}
        self.faults: dict[InstanceId, list[JobId]] = {}

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Forget a job that ends."""
        self.early.pop(job.id, None)
        self.excused.pop(job.id, None)

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        """Forget an instance that is gone."""
        if instance.state is InstanceState.GONE:
            self.faults.pop(instance.id, None)
