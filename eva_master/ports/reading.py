"""What those see who only look: the cluster as of one commit, and the records of what is over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eva_master.model.accounting.totals import Totals
from eva_master.model.catalog import Catalog
from eva_master.model.changes import InstanceAccount, JobAccount
from eva_master.model.events import CloudTrouble
from eva_master.model.ids import Exact, Family, InstanceId, JobId, Millis, RunId, Workload
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Ended, Instance, Job, TaskRun
from eva_master.model.resources import Resources


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with everything that is kept of it.

    Attributes:
        runs: Its task runs, by index.
        account: What it owes.
    """

    job: Job
    runs: tuple[TaskRun, ...]
    account: JobAccount


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """An instance with what it cost; `account` is `None` if it was never billed."""

    instance: Instance
    account: InstanceAccount | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """How long a task run or a job will take.

    Attributes:
        left_ms: Standalone time that it still needs, `None` if unknown.
        estimated: Whether all that is known is how long earlier tasks of the workload took.
        eta_ms: When it is expected to end at its present pace, `None` if that is unknown or it
            does not run.
    """

    left_ms: int | None = None
    estimated: bool = False
    eta_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """The control loop stands still, and goes on by itself.

    Attributes:
        since_ms: From when on.
        reason: Why, in words for the user.
        hint: What to do about it.
    """

    since_ms: Millis
    reason: str
    hint: str


@dataclass(frozen=True, slots=True)
class CostSums:
    """What the whole cluster cost up to a moment."""

    charged: Exact
    idle: Exact
    alone: Exact


class Measured(Protocol):
    """A figure that was measured."""

    @property
    def value(self) -> int:
        """The figure, in the unit of its table."""
        ...

    @property
    def at_ms(self) -> Millis:
        """When it was measured last."""
        ...

    @property
    def samples(self) -> int:
        """How often it was measured."""
        ...


@dataclass(frozen=True, slots=True)
class LearnedTables:
    """What was learned, table by table.

    Attributes:
        standalone: Millionths of an iteration per second, by workload and family.
        interference: A workload, its neighbours, and how much of its standalone rate it keeps in
            millionths, as policies reckon with it.
        evidence: The measurements behind `interference`, by its first two columns.
        delays: Milliseconds, by what takes time and the name of a workload or instance type.
    """

    standalone: Mapping[tuple[Workload, Family], Measured]
    interference: Sequence[tuple[Workload, tuple[Workload, ...], int]]
    evidence: Mapping[tuple[Workload, tuple[Workload, ...]], Measured]
    delays: Mapping[tuple[str, str], Measured]


class ReadModel(Protocol):
    """The cluster as of one commit. It never changes, and any thread may read it.

    It has what is alive, and what was over for less than the master's `history_kept`; `Archive`
    has the rest. Amounts as of a moment after the commit are projected: running costs are added,
    nothing is booked.
    """

    @property
    def at_ms(self) -> Millis:
        """When the control loop last looked at the world."""
        ...

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """By id, in order of submission."""
        ...

    @property
    def runs(self) -> Mapping[RunId, TaskRun]:
        """The task runs by their ids."""
        ...

    @property
    def instances(self) -> Mapping[InstanceId, Instance]:
        """By id, in order of launch."""
        ...

    @property
    def active(self) -> Mapping[JobId, Job]:
        """Jobs that have not ended."""
        ...

    @property
    def live(self) -> Mapping[InstanceId, Instance]:
        """Instances that are not gone."""
        ...

    @property
    def totals(self) -> Totals:
        """Sums over everything that ever was."""
        ...

    @property
    def rounds(self) -> int:
        """How many planning rounds there were."""
        ...

    @property
    def connected(self) -> int:
        """How many workers have a session."""
        ...

    @property
    def catalog(self) -> Catalog:
        """Offerings, with what the cloud said about their availability."""
        ...

    @property
    def trouble(self) -> CloudTrouble:
        """Whether the cloud does what it is asked."""
        ...

    @property
    def memory(self) -> PolicyMemory | None:
        """The journalled memory of the policy."""
        ...

    def find(self, owner: str, reference: str) -> Job | None:
        """A job by its id, or the owner's newest one by its name."""
        ...

    def newest_named(self, owner: str, name: str) -> Job | None:
        """An owner's newest job of a name."""
        ...

    def newest(self, before: JobId | None = None) -> Iterator[Job]:
        """Jobs that have not ended, newest first.

        Args:
            before: Only jobs that were submitted before this one, which need not be known.
        """
        ...

    def members(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job that is known, by index."""
        ...

    def record(self, job: JobId, now: Millis) -> JobRecord:
        """A job that is known, with what it owes as of `now`."""
        ...

    def billed(self, instance: InstanceId, now: Millis) -> InstanceRecord:
        """An instance that is known, with what it cost as of `now`."""
        ...

    def cost(self, now: Millis) -> CostSums:
        """What the whole cluster cost as of `now`, what is not in memory included."""
        ...

    def charged(self, now: Millis) -> Exact:
        """What the cloud charges for everything up to `now`."""
        ...

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that take room on an instance."""
        ...

    def used(self, instance: InstanceId) -> Resources:
        """What they take of it together."""
        ...

    def is_connected(self, instance: InstanceId) -> bool:
        """Whether the instance's worker has a session."""
        ...

    def outlooks(self, record: JobRecord, now: Millis) -> tuple[Outlook, Sequence[Outlook]]:
        """How long a job will take, and how long each of its task runs."""
        ...

    def normalised(self, run: TaskRun) -> float | None:
        """Last measured rate over standalone rate, `None` while either is unknown."""
        ...

    def reservation_price(self, run: TaskRun) -> int:
        """The reservation price of a task run's task, in micro-dollars per hour."""
        ...

    def reservation_prices(self, spec: JobSpec) -> tuple[int, ...]:
        """The reservation prices of the tasks of a job that nobody has submitted."""
        ...

    def learned_tables(self) -> LearnedTables:
        """What was learned about workloads and instance types."""
        ...

    def preview(self, spec: JobSpec, now: Millis) -> Snapshot:
        """What a policy would see if a job had just been submitted; takes time."""
        ...


class Archive(Protocol):
    """Records of everything that was ever committed, for any thread; every call takes time.

    Pages go from the newest record back. A page begins after the one that `before` names.
    """

    def job(self, job: JobId) -> JobRecord | None:
        """A job by its id."""
        ...

    def newest_named(self, owner: str, name: str) -> JobRecord | None:
        """An owner's newest job of a name."""
        ...

    def owned(
        self, owner: str, references: Sequence[str]
    ) -> Mapping[str, tuple[JobId, Ended | None]]:
        """An owner's jobs by their ids, or else the newest ones by their names.

        Args:
            owner: Nobody else's jobs are looked at.
            references: Ids and names; one of which there is no job is left out.

        Returns:
            The id of each job, and how it ended; `None` if it has not.
        """
        ...

    def submitted(self, owner: str, command: str) -> JobId | None:
        """The job that an owner's submission made, however long ago."""
        ...

    def page_of_jobs(self, before: JobId | None, limit: int) -> Sequence[JobId]:
        """Ids of jobs, newest first."""
        ...

    def records_of_jobs(self, jobs: Sequence[JobId]) -> Mapping[JobId, JobRecord]:
        """Jobs by their ids; one that there is not is left out."""
        ...

    def page_of_instances(self, before: InstanceId | None, limit: int) -> Sequence[InstanceId]:
        """Ids of instances, newest first."""
        ...

    def records_of_instances(
        self, instances: Sequence[InstanceId]
    ) -> Mapping[InstanceId, InstanceRecord]:
        """Instances by their ids; one that there is not is left out."""
        ...
