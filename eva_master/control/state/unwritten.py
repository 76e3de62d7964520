"""Changes of the state since the last write, and since the last read model."""

from __future__ import annotations

from dataclasses import dataclass, field

from eva_master.model.changes import Documents, Round
from eva_wire.values.ids import InstanceId, JobId, RunId


@dataclass(slots=True)
class Unwritten:
    """Changes that the journal does not have yet; dicts serve as ordered sets."""

    jobs: dict[JobId, None] = field(default_factory=dict)
    runs: dict[RunId, None] = field(default_factory=dict)
    instances: dict[InstanceId, None] = field(default_factory=dict)
    job_accounts: dict[JobId, None] = field(default_factory=dict)
    instance_accounts: dict[InstanceId, None] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    values: Documents = field(default_factory=dict)
    explained: dict[JobId, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        records = self.jobs or self.runs or self.instances
        accounts = self.job_accounts or self.instance_accounts
        return bool(records or accounts or self.rounds or self.values or self.explained)


@dataclass(slots=True)
class Unpublished:
    """Names of records that changed since the last read model; dicts serve as ordered sets.

    Attributes:
        jobs: Jobs with a changed record or account.
        runs: Task runs with a changed record or progress.
        instances: Instances with a changed record, account, session or occupants.
    """

    jobs: dict[JobId, None] = field(default_factory=dict)
    runs: dict[RunId, None] = field(default_factory=dict)
    instances: dict[InstanceId, None] = field(default_factory=dict)

    def moved(self, old: InstanceId | None, new: InstanceId | None) -> None:
        """Note the move of a task run from one instance to another."""
        if old is not None:
            self.instances[old] = None
        if new is not None:
            self.instances[new] = None
