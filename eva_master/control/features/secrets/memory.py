"""Memory of the secrets that are set, by name alone."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Job
from eva_master.model.secrets import SecretName
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB


class SecretsMemory(Feature):
    """Memory of secrets and of the jobs that use some.

    Attributes:
        present: The secrets that are set; `None` where none are kept account of, as in simulations.
        jobs: Jobs that use secrets and have not ended, in order of submission.
    """

    def __init__(self) -> None:
        self.present: set[SecretName] | None = None
        self.jobs: dict[JobId, None] = {}

    def started(self, turn: Turn) -> None:
        """Follow the jobs of the journal."""
        for job in turn.state.active:
            self.job_changed(turn, None, turn.state.jobs[job])

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        """Follow a job that uses secrets."""
        if not job.spec.secrets:
            return
        if job.state in TERMINAL_JOB:
            self.jobs.pop(job.id, None)
        else:
            self.jobs.setdefault(job.id)
