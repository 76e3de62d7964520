"""Read access: the cluster as of one commit, and the records of ended jobs and gone instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eva_master.model.accounting.cost_sums import CostSums
from eva_master.model.accounting.months import MonthLevel
from eva_master.model.accounting.splits import CostSplit
from eva_master.model.accounting.totals import CostTotals, PartitionTotals, TenantTotals, Totals
from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.catalog import Catalog, Offering
from eva_master.model.changes import JobAccount
from eva_master.model.events import CloudTrouble
from eva_master.model.feed import FeedEvent
from eva_master.model.fleet.keeping import KeepReason
from eva_master.model.fleet.listing import CatalogListing
from eva_master.model.fleet.partitions import Partitions
from eva_master.model.job import JobSpec
from eva_master.model.planning.estimate import Estimate, Estimates, Evidence
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.reasons import Handed
from eva_master.model.planning.standing import LinePlace
from eva_master.model.planning.suspension import Suspension
from eva_master.model.records import Ended, Instance, Job, TaskRun
from eva_master.model.tenants.quotas import TenantLimits
from eva_master.model.tenants.tenancy import LoanTerms
from eva_master.ports.instances import Hosted, InstanceRecord
from eva_master.ports.learned import LearnedTime, WatchedPool
from eva_master.ports.previews import JobPreview
from eva_master.ports.shared_limits import SharedLimit
from eva_wire.values.ids import Exact, Family, InstanceId, JobId, Millis, RunId, Workload
from eva_wire.values.states import RunState

SMALL_JOB = 100
"""All tasks of a job of so many are shown at once; of a larger one those that matter, at most so
many: those that failed, ended last, have a place or wait though they began."""
PAGE_AT_MOST = 1_000
"""Tasks of a page that is asked for."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """The tasks of a job that a reader asks for.

    Attributes:
        first: From which index on; `None` for all of a small job, and those that matter of another.
        most: At most so many.
        failed: Only those that have failed.
    """

    first: int | None = None
    most: int = SMALL_JOB
    failed: bool = False


SHOWN = TaskPage()
"""The tasks that are shown if no page is asked for."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, what all its tasks do, and some of them.

    Attributes:
        runs: Task runs of the page that was asked for, all of each of its tasks.
        account: Charges of the job.
        states: How many of all its tasks are in each state.
        in_hand: How many of their runs have an instance or a target.
        telling: The task runs that tell how long the job still takes; none once it has ended.
        suspension: Why it rests, if plans have suspended all of its tasks that are not over.
        reasons: One task run for each reason for which tasks of an array wait that never began.
        handed: The priority above its own that it has from a job which waits for it.
    """

    job: Job
    runs: tuple[TaskRun, ...]
    account: JobAccount
    states: Mapping[RunState, int]
    in_hand: int = 0
    telling: tuple[TaskRun, ...] = ()
    suspension: Suspension | None = None
    reasons: tuple[TaskRun, ...] = ()
    handed: Handed | None = None


@dataclass(frozen=True, slots=True)
class Outlook:
    """How long a task run or a job will take.

    Attributes:
        left_ms: Standalone time that it still needs, `None` if unknown.
        estimated: Whether all that is known is how long other tasks took.
        eta_ms: When it is expected to end at its present pace, `None` if that is unknown or it
            does not run.
        earliest_ms: Of an estimate: it ends between this time and `latest_ms` in two of three
            cases.
        latest_ms: See there.
        estimate: How long it takes in all, `None` if unknown; of a job, its longest task.
    """

    left_ms: int | None = None
    estimated: bool = False
    eta_ms: Millis | None = None
    earliest_ms: Millis | None = None
    latest_ms: Millis | None = None
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True)
class LineOutlook:
    """The work before a job's first waiting task in a line, and the latest start of that task.

    Attributes:
        tasks: How many waiting tasks go before it.
        work_ms: How long these take together, with what is left of the tasks on the slots that
            count, as estimated; `None` if one of them has no estimate.
        slots: So many tasks at a time have room on instances that no cloud takes back, as far as
            they count for the latest start.
        latest_ms: When it starts at the latest by these estimates; `None` if there is no such time.
        no_bound: Why there is none, for the user.
        others_first: Whether others that come later may go first, so that it may be later.
    """

    tasks: int
    work_ms: int | None
    slots: int = 0
    latest_ms: Millis | None = None
    no_bound: str = ""
    others_first: bool = False


class Contradicted(Protocol):
    """A stated duration that is not believed."""

    @property
    def workload(self) -> Workload:
        """Of the tasks that contradicted it."""
        ...

    @property
    def stated_ms(self) -> int:
        """The duration that is stated."""
        ...

    @property
    def took_ms(self) -> tuple[int, ...]:
        """How long the last tasks took, each by itself."""
        ...


@dataclass(frozen=True, slots=True)
class Pause:
    """The control loop stands still, and goes on by itself.

    Attributes:
        since_ms: From when on.
        reason: Why, in words for the user.
        hint: Advice on the pause.
    """

    since_ms: Millis
    reason: str
    hint: str


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
    """Learned figures, table by table.

    Rows name the owner whose jobs taught them, or a tenant behind an "@"; figures of others, as
    plans reckon with them, name nobody.

    Attributes:
        standalone: Millionths of an iteration per second, by workload, family and owner.
        interference: By a workload, its neighbours and owner: how much of its standalone rate it
            keeps in millionths, as policies reckon with it, and the measurements behind that.
        delays: Milliseconds, by what takes time, name of a workload or instance type, and owner.
    """

    standalone: Mapping[tuple[Workload, Family, str], Measured]
    interference: Mapping[tuple[Workload, tuple[str, ...], str], tuple[int, Measured | None]]
    delays: Mapping[tuple[str, str, str], Measured]


@dataclass(frozen=True, slots=True)
class DagOutlook:
    """The outlook for users on the DAG of which a job is a stage.

    Attributes:
        label: Label of the DAG.
        stages: How many stages it has. ended: How many of these have ended.
        waiting: How many wait for others.
        left_ms: How long all tasks that have not finished take together, by estimate; `None` if
            nothing is known of a stage that does not wait.
        earlier: How many earlier DAGs of the label tell how its stages hang together; 0 if these
            are too few, so that each stage is estimated by itself.
    """

    label: str
    stages: int
    ended: int
    waiting: int
    left_ms: int | None
    earlier: int


class ReadModel(Protocol):
    """The cluster as of one commit, immutable and readable from any thread.

    Active jobs and live instances are included, and those that ended less than the master's
    `history_kept` ago; `Archive` has the rest. Amounts as of a moment after the commit are
    projected: running costs are added, nothing is booked.
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
    def kept(self) -> Mapping[InstanceId, KeepReason]:
        """Why instances stay that are empty."""
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
    def listing(self) -> CatalogListing:
        """When the cloud was asked what it sells."""
        ...

    @property
    def month_levels(self) -> Mapping[str, MonthLevel]:
        """Limits of a month that are used up, or nearly, by the kind and name of their party."""
        ...

    @property
    def trouble(self) -> CloudTrouble:
        """Whether the cloud does what it is asked."""
        ...

    @property
    def wall(self) -> WallClock:
        """How the wall clock stands to the loop's time, which all other times are of."""
        ...

    @property
    def pool_reasons(self) -> Mapping[str, str]:
        """Why members of pools stay, by pool; empty until there was a plan."""
        ...

    @property
    def queued(self) -> Mapping[JobId, tuple[LinePlace, ...]]:
        """Where the waiting tasks of a job stand in line for room in pools."""
        ...

    @property
    def memory(self) -> PolicyMemory | None:
        """The journalled memory of the policy; if the cluster is divided, of the default one's."""
        ...

    @property
    def memories(self) -> Mapping[str, PolicyMemory | None]:
        """Memories of the other partitions' policies, by partition."""
        ...

    @property
    def partitions(self) -> Partitions:
        """How the cluster is divided."""
        ...

    def partition_of(self, spec: JobSpec) -> str:
        """The partition in which a job that names none would run; empty if there is one only."""
        ...

    def of_partitions(self, now: Millis) -> Mapping[str, PartitionTotals]:
        """Each partition's holdings and costs as of `now`, by name.

        The charges add up to all that was charged. If the cluster is not divided, it is one
        partition of an empty name.
        """
        ...

    def shared_limits(self, now: Millis) -> Sequence[SharedLimit]:
        """Limits that partitions share and that are in use, with who waits for each, in order."""
        ...

    def find(self, owner: str, reference: str) -> Job | None:
        """A job by its id, or the owner's by its name, as `newest_named` has it."""
        ...

    def newest_named(self, owner: str, name: str) -> Job | None:
        """An owner's newest active job of a name, else the newest one that is known."""
        ...

    def active_named(self, name: str, owner: str = "") -> Iterator[Job]:
        """Active jobs of a name, newest first; of all owners if none is named."""
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

    def record(self, job: JobId, now: Millis, page: TaskPage = SHOWN) -> JobRecord:
        """A job that is known, with what it owes as of `now`, and a page of its tasks.

        The call takes time in proportion to the tasks of the page, and to those of a gang.
        """
        ...

    def billed(self, instance: InstanceId, now: Millis) -> InstanceRecord:
        """An instance that is known, with what it cost as of `now`."""
        ...

    def cost(self, now: Millis) -> CostSums:
        """The costs of the whole cluster as of `now`, with those that are not in memory."""
        ...

    def of_tenants(self, now: Millis) -> Mapping[str, TenantTotals]:
        """Costs of each tenant's jobs as of `now`, and their number by state.

        Together with the idle part of `cost` the charges add up to all that was charged.
        """
        ...

    def tenant_limits(self, now: Millis) -> Mapping[str, TenantLimits]:
        """Limits and use of tenants with quotas or budgets, as of `now`."""
        ...

    def costs(self, split: CostSplit, now: Millis) -> Mapping[str, CostTotals]:
        """Exact costs by a property as of `now`, by name; the empty name stands for the rest.

        The charges add up to those of `cost`, together with its idle part if jobs have the
        property. Adapters show `eva_master.adapters.bills.divided_bill`.
        """
        ...

    def charged(self, now: Millis) -> Exact:
        """The cloud's charges for all instances up to `now`."""
        ...

    def ahead(self, job: JobId, places: Iterable[LinePlace], now: Millis) -> list[LineOutlook]:
        """The work before the waiting tasks of a job in its lines; takes time."""
        ...

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that take room on an instance."""
        ...

    def hosted(self, *instances: InstanceId) -> Mapping[InstanceId, Hosted]:
        """Tasks on instances, of those named, or else of all that have some."""
        ...

    def is_connected(self, instance: InstanceId) -> bool:
        """Whether the instance's worker has a session."""
        ...

    def outlooks(self, record: JobRecord, now: Millis) -> tuple[Outlook, Sequence[Outlook]]:
        """How long a job will take, and how long each of the task runs of its record."""
        ...

    def contradicted(self, job: Job) -> Contradicted | None:
        """Why a job's stated duration is not believed; `None` if it is, or if there is none."""
        ...

    def evidence(self, job: Job) -> Evidence | None:
        """Sources of a job's estimated run time; `None` if it is stated or unknown."""
        ...

    def terms_of(self, job: JobId) -> LoanTerms | None:
        """On what terms a job has room of other tenants; `None` if it borrows none."""
        ...

    def dag_outlook(self, job: Job) -> DagOutlook | None:
        """The outlook on a job's DAG; `None` if it is no stage of one, or has ended."""
        ...

    def normalised(self, run: TaskRun) -> float | None:
        """Last measured rate over standalone rate, `None` while either is unknown."""
        ...

    def reservation_prices(self, spec: JobSpec) -> tuple[int, ...]:
        """The reservation prices of the tasks of a job that nobody has submitted."""
        ...

    def learned_tables(self, voice: str | None) -> LearnedTables:
        """Lessons about workloads and instance types.

        Args:
            voice: Owner, or tenant behind an "@", who may see their own figures and, without a
                name, those of others that plans reckon with for them; `None` for everybody's.
        """
        ...

    @property
    def estimates(self) -> Estimates:
        """Source of estimated run times."""
        ...

    def spot_life_ms(self, job: Job) -> int | None:
        """How long a spot instance lasts on average that a job may use; `None` if it uses none."""
        ...

    def watched_pools(self, now: Millis) -> Sequence[WatchedPool]:
        """States of spot pools as last seen, by name."""
        ...

    def learned_times(self, owner: str) -> Sequence[LearnedTime]:
        """Learned run times of one owner or, if empty, of all; sorted."""
        ...

    def unforked(self, job: JobId, now: Millis) -> str:
        """Why a job gets no more forks; empty if it has all, or may have none."""
        ...

    def expected_price(self, offering: Offering) -> int:
        """The hourly price with expected interruptions, in micro-dollars."""
        ...

    def behind_others(self, spec: JobSpec, job: JobId | None, now: Millis) -> str:
        """Whether a job may be late since others are due before it; empty if not.

        Args:
            spec: The job.
            job: Its id, if it is there already.
            now: The time.
        """
        ...

    def preview(self, spec: JobSpec, now: Millis) -> JobPreview:
        """Follow the submission of a job on a copy; takes time."""
        ...


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Events to read.

    Attributes:
        after: Number of the last event that is known already; 0 for none.
        before: Number of the first event that is known already; 0 for none.
        most: The largest number of events.
        newest: Whether the newest of them are wanted, and not the oldest.
        job: Only events about this job; empty for all.
        instance: Only events about this instance; empty for all.
    """

    after: int = 0
    before: int = 0
    most: int = 100
    newest: bool = False
    job: str = ""
    instance: str = ""


class Archive(Protocol):
    """Records of everything that was ever committed, for any thread; every call takes time.

    Pages go from the newest record back. A page begins after the one that `before` names.
    """

    def job(self, job: JobId, page: TaskPage = SHOWN) -> JobRecord | None:
        """A job by its id, with a page of its tasks."""
        ...

    def newest_named(self, owner: str, name: str, page: TaskPage = SHOWN) -> JobRecord | None:
        """An owner's newest job of a name."""
        ...

    def owned(
        self, owner: str, references: Sequence[str]
    ) -> Mapping[str, tuple[JobId, Ended | None]]:
        """An owner's jobs by their ids, or else the newest ones by their names.

        Args:
            owner: Owner of the jobs; others are not looked at.
            references: Ids and names; one of which there is no job is left out.

        Returns:
            The id of each job, and how it ended; `None` if it has not.
        """
        ...

    def submitted(self, owner: str, command: str) -> JobId | None:
        """The job that an owner's submission made, however long ago."""
        ...

    def ended(self, after: Millis, until: Millis, most: int) -> tuple[Sequence[JobId], Millis]:
        """Jobs that ended after a time and up to another one, the earliest first.

        Args:
            after: The earlier time.
            until: The later time.
            most: About how many; all that ended in one millisecond come together.

        Returns:
            The jobs, and the time up to which there are no others.
        """
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

    def events(self, chosen: FeedPage) -> Sequence[FeedEvent]:
        """Events by number; those older than `history_kept` are gone."""
        ...
