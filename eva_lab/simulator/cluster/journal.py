"""A journal in memory, from which a simulated master restarts."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.changes import Changes, InstanceAccount, JobAccount, Round
from eva_master.model.feed import FeedEvent
from eva_master.model.planning.plan import Json
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import TERMINAL_JOB, InstanceState


class MemoryJournal:
    """Implements `eva_master.ports.Journal`; survives the master, not the process.

    Attributes:
        rounds: Every round by its number, without reasons, which would take too much memory.
        commits: Number of transactions.
        feed: Events, which simulations do not write.
    """

    def __init__(self) -> None:
        self.rounds: dict[int, Round] = {}
        self.commits = 0
        self.feed: list[FeedEvent] = []
        self._jobs: dict[JobId, Job] = {}
        self._runs: dict[RunId, TaskRun] = {}
        self._instances: dict[InstanceId, Instance] = {}
        self._job_accounts: dict[JobId, JobAccount] = {}
        self._instance_accounts: dict[InstanceId, InstanceAccount] = {}
        self._values: dict[str, Json] = {}

    def load(self, since: Millis | None = None) -> Changes:
        """See `eva_master.ports.Journal.load`."""
        jobs = {key: job for key, job in self._jobs.items() if _wanted(job, since)}
        instances = {
            key: instance for key, instance in self._instances.items() if _wanted(instance, since)
        }
        return Changes(
            jobs=tuple(jobs.values()),
            runs=tuple(run for run in self._runs.values() if since is None or run.job in jobs),
            instances=tuple(instances.values()),
            job_accounts=tuple(
                account
                for account in self._job_accounts.values()
                if since is None or account.job in jobs
            ),
            instance_accounts=tuple(
                account
                for account in self._instance_accounts.values()
                if since is None or account.instance in instances
            ),
            values=dict(self._values),
        )

    def commit(self, changes: Changes) -> None:
        """See `eva_master.ports.Journal.commit`."""
        self.commits += 1
        self._jobs.update((job.id, job) for job in changes.jobs)
        self._runs.update((run.id, run) for run in changes.runs)
        self._instances.update((instance.id, instance) for instance in changes.instances)
        self._job_accounts.update((account.job, account) for account in changes.job_accounts)
        self._instance_accounts.update(
            (account.instance, account) for account in changes.instance_accounts
        )
        self.rounds.update(
            (record.number, replace(record, reasons=None)) for record in changes.rounds
        )
        self._values.update(changes.documents())
        self.feed.extend(changes.feed)


def _wanted(record: Job | Instance, since: Millis | None) -> bool:
    """Whether a record is of something that is not over, or was not by then."""
    over = record.state in TERMINAL_JOB or record.state is InstanceState.GONE
    return since is None or not over or record.since_ms > since
