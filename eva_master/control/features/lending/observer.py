"""Debts between tenants follow the records of jobs and task runs."""

from __future__ import annotations

from eva_master.control.features.lending import payments, worths
from eva_master.control.turn.turn import AdoptedPlan, Feature, Turn
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
        _leaves_partition(turn, job, succeeded=succeeded)

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        """Have the policy of a partition that a job leaves, after it has seen it, told of that."""
        if old is not None and old.moved_to != job.moved_to and not old.waits:
            _leaves_partition(turn, old)

    def plan_adopted(self, turn: Turn, adopted: AdoptedPlan) -> None:
        """Carry out the terms on which jobs of a partition use room of other tenants."""
        state, settings = turn.state, turn.settings
        lending, partition = state.tally.lending, adopted.partition
        ours = [
            job
            for job in lending.in_force()
            if job not in state.jobs
            or settings.partitions.home(state.jobs[job].partition) is partition
        ]
        payments.adopt(state, adopted.plan, ours, settings.tenancy.quotas, turn.now)
        ended = {job for tenant in adopted.shown.tenants for job in tenant.ended}
        lending.forget({job for job in ended if job.partition == partition.name})

    def run_changes(self, turn: Turn, old: TaskRun, run: TaskRun) -> None:
        """Book what the task run's job owes so far."""
        payments.book(turn.state, run.job, turn.now)


def _leaves_partition(turn: Turn, job: Job, *, succeeded: bool = False) -> None:
    """Have a policy that settles accounts told of a job that its partition has no more."""
    settings = turn.settings
    home = settings.partitions.home(job.partition)
    if home.lends and job.spec.tenant in settings.tenancy.quotas:
        payments.note_end(turn.state, job, home.name, turn.now, succeeded=succeeded)
