"""Active jobs, and which of them have deadlines."""

from __future__ import annotations

from eva_master.model.records import Job
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB


class ActiveJobs(dict[JobId, None]):
    """Jobs that have not ended, in the order of their submission.

    Args:
        with_deadlines: The jobs with a deadline, in the same order; kept up to date.
    """

    def __init__(self, with_deadlines: dict[JobId, None]) -> None:
        super().__init__()
        self._with_deadlines = with_deadlines

    def follow(self, job: Job) -> None:
        """Take in the present record of a job."""
        if job.state in TERMINAL_JOB:
            self.pop(job.id, None)
            self._with_deadlines.pop(job.id, None)
            return
        self[job.id] = None
        if job.spec.deadline is not None:
            self._with_deadlines[job.id] = None
