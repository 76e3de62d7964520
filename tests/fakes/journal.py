"""A journal in memory, which can crash around a commit."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.model.changes import Changes, InstanceAccount, JobAccount, Round
from eva_master.model.ids import CopyId, InstanceId, JobId
from eva_master.model.plan import Json
from eva_master.model.records import Instance, Job, TaskCopy

Hook = Callable[[Changes], None]


class MemoryJournal:
    """Survives the master, not the process.

    Args:
        before: Called before each commit; what it raises crashes the master with nothing written.
        after: Called after each commit; what it raises crashes it with everything written.
    """

    def __init__(self, *, before: Hook | None = None, after: Hook | None = None) -> None:
        self.before = before
        self.after = after
        self.rounds: dict[int, Round] = {}
        self._jobs: dict[JobId, Job] = {}
        self._copies: dict[CopyId, TaskCopy] = {}
        self._instances: dict[InstanceId, Instance] = {}
        self._job_accounts: dict[JobId, JobAccount] = {}
        self._instance_accounts: dict[InstanceId, InstanceAccount] = {}
        self._values: dict[str, Json] = {}

    def load(self) -> Changes:
        return Changes(
            jobs=tuple(self._jobs.values()),
            copies=tuple(self._copies.values()),
            instances=tuple(self._instances.values()),
            job_accounts=tuple(self._job_accounts.values()),
            instance_accounts=tuple(self._instance_accounts.values()),
            values=dict(self._values),
        )

    def commit(self, changes: Changes) -> None:
        if self.before is not None:
            self.before(changes)
        self._jobs.update((job.id, job) for job in changes.jobs)
        self._copies.update((copy.id, copy) for copy in changes.copies)
        self._instances.update((instance.id, instance) for instance in changes.instances)
        self._job_accounts.update((account.job, account) for account in changes.job_accounts)
        self._instance_accounts.update(
            (account.instance, account) for account in changes.instance_accounts
        )
        self.rounds.update((record.number, record) for record in changes.rounds)
        self._values.update(changes.values)
        if self.after is not None:
            self.after(changes)
