"""Debts between tenants follow the records of jobs and task runs."""

from __future__ import annotations

from eva_master.control.features.lending import payments, worths
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Job, TaskRun
from eva_wire.values.states import JobState


class LendingObserver(Feature):
    """Debts of jobs are booked before their tasks change places, and when they end."""

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Book what a job owes that ends, and what it is worth; let go of its terms."""
        succeeded = job.state is JobState.SUCCEEDED
        payments.end(turn.state, job.id, turn.now)
        if succeeded:
            worths.book(turn.state, job, turn.now)
        self.leaves_partition(turn, job, succeeded=succeeded)

    def run_changes(self, turn: Turn, old: TaskRun, run: TaskRun) -> None:
        """Book what the task run's job owes so far."""
        payments.book(turn.state, run.job, turn.now)

    def leaves_partition(self, turn: Turn, job: Job, *, succeeded: bool = False) -> None:
        """Have a policy that settles accounts told of a job that its partition has no more."""
        settings = turn.settings
        home = settings.partitions.home(job.partition).name
        if home in settings.tenancy.lending and job.spec.tenant in settings.tenancy.quotas:
            payments.note_end(turn.state, job, home, turn.now, succeeded=succeeded)
