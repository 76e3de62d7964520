"""Read access to a cluster's records, either the state itself or a model of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from eva_master.control.standing.membership import Membership
from eva_master.control.state.counters import Counters
from eva_master.control.state.derived.dags import Dag
from eva_master.control.state.derived.gang_places import GangParts, KeyOf
from eva_master.control.state.finished import Kind
from eva_master.control.state.runs import Runs
from eva_master.control.state.view_cache import ViewCache
from eva_master.learning.colocation import Key
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.market.spot_market import SpotMarket
from eva_master.learning.run_times.posterior import Finished
from eva_master.learning.voices.names import Voice
from eva_master.learning.voices.resolution import Resolved
from eva_master.model.accounting.totals import Totals
from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.catalog import Catalog, Offering
from eva_master.model.changes import InstanceAccount, JobAccount
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.reasons import Handed
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources, total
from eva_master.packing.valuation.job_valuation import Rates, Reservation
from eva_wire.values.ids import InstanceId, JobId, RunId


class CompanyRecords(Protocol):
    """The task runs on each instance, by what they have in common."""

    def groups(self, instance: InstanceId) -> list[tuple[TaskRun, int]]:
        """One of the task runs that run on an instance of each kind and rate, and how many."""
        ...

    def runs_on(self, run: RunId, instance: InstanceId) -> bool:
        """Whether a task run runs on an instance."""
        ...

    def jobs_on(self, instance: InstanceId) -> Collection[JobId]:
        """The jobs of the task runs that take room on an instance, in the order of those."""
        ...

    def has_extras(self, instance: InstanceId) -> bool:
        """Whether an extra run of a task takes room on an instance."""
        ...

    def ppm(self, run: RunId) -> int | None:
        """How fast a task run was in its company on average, in millionths; `None` if unknown."""
        ...


class TaskRecords(Protocol):
    """Counts and kinds of the tasks of each job."""

    def succeeded(self, job: JobId) -> int:
        """How many tasks of a job have succeeded."""
        ...

    def failed(self, job: JobId) -> int:
        """How many tasks of a job have failed for good."""
        ...

    def kinds(self, job: JobId) -> tuple[TaskSpec, ...]:
        """Tasks of a job that differ, all its workloads and demands among them."""
        ...

    def by_kind(self, job: JobId) -> tuple[Sequence[int], ...]:
        """The indices of a job's tasks of each kind."""
        ...

    def gpu_ms(self, job: JobId) -> int:
        """The time for which tasks had GPUs, those that run now not counted since they began."""
        ...

    def shown(self, job: JobId) -> list[RunId]:
        """The tasks of an array that a plan is about, by index."""
        ...

    def replicas_left(self, job: JobId) -> int | None:
        """How many more tasks of an array may be given an extra run now."""
        ...

    def unseen(self, job: JobId) -> int:
        """How many tasks of an array wait and might be placed beside those that are shown."""
        ...


class FinishedRecords(Protocol):
    """The finished tasks of arrays, on which estimates rest."""

    def telling(self, job: Job) -> Mapping[Kind, Finished]:
        """The finished tasks on which estimates rest, by kind: see `FinishedTasks.telling`."""
        ...

    def of(self, job: Job) -> Mapping[Kind, Finished]:
        """The finished tasks of an array that has not ended, by kind."""
        ...

    def pilots_left(self, job: JobId) -> int | None:
        """How many pilots of a job have not ended; `None` if it has none."""
        ...


class FigureRecords(Protocol):
    """Learned figures, looked up by voice."""

    @property
    def resolved(self) -> Resolved:
        """Figures by which the last plan was made, for the tasks of all voices."""
        ...

    def resolve(self) -> Resolved:
        """Figures by which plans are made from now on, see `resolved`."""
        ...

    def expected_ppm(self, voice: Voice, entry: Key) -> int:
        """How fast a task is expected to run beside others by what its own voice has learned.

        See `learning.colocation.lookup`.
        """
        ...

    def observed_ppm(self, voice: Voice, entry: Key) -> int:
        """Like `expected_ppm`, but pairs never seen together do not slow each other down."""
        ...


class PriceRecords(Protocol):
    """Reservation prices of jobs, and the rates behind them."""

    def of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """The reservation of each task of a job, submitted or not."""
        ...

    def rates(self, job: JobSpec, task: TaskSpec) -> Rates:
        """Standalone rates of a task of a job by its own voice, see `JobValuation.rates`."""
        ...


class GangRecords(Protocol):
    """Where the members of gangs are."""

    def parts(self, job: JobId, key_of: KeyOf) -> GangParts:
        """Members of a gang that have an instance, in groups; see `GangPlaces.parts`."""
        ...


class DagRecords(Protocol):
    """The DAGs of jobs that have not ended."""

    def of(self, job: Job) -> Dag | None:
        """The DAG of a job; `None` if it is no stage of one, or has ended."""
        ...


class Records(Protocol):
    """The records and what was learned, for functions that change nothing.

    `control.state.store.State` and `control.readside.model.ClusterModel` have all of it, so that
    the same functions say what a job costs in the control loop and to whoever asks.
    """

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """By id, in order of submission."""
        ...

    @property
    def runs(self) -> Runs:
        """The task runs by their ids."""
        ...

    @property
    def instances(self) -> Mapping[InstanceId, Instance]:
        """The instances by their ids."""
        ...

    @property
    def job_accounts(self) -> Mapping[JobId, JobAccount]:
        """The debt of each job at the last booking."""
        ...

    @property
    def instance_accounts(self) -> Mapping[InstanceId, InstanceAccount]:
        """The cost of each instance at the last booking."""
        ...

    @property
    def active(self) -> Collection[JobId]:
        """Jobs that have not ended, in order of submission."""
        ...

    @property
    def live(self) -> Collection[InstanceId]:
        """Instances that are not gone, in order of launch."""
        ...

    @property
    def totals(self) -> Totals:
        """Sums over everything that ever was."""
        ...

    @property
    def catalog(self) -> Catalog:
        """Offerings, with what the cloud said about their availability."""
        ...

    @property
    def learned(self) -> Knowledge:
        """About workloads and instance types."""
        ...

    @property
    def market(self) -> SpotMarket:
        """Observations of spot instances and their pools."""
        ...

    @property
    def wall(self) -> WallClock:
        """How the wall clock stands to the loop's time."""
        ...

    @property
    def company(self) -> CompanyRecords:
        """The task runs on each instance, by what they have in common."""
        ...

    @property
    def tasks(self) -> TaskRecords:
        """Counts and kinds of the tasks of each job."""
        ...

    @property
    def finished_tasks(self) -> FinishedRecords:
        """The finished tasks of arrays."""
        ...

    @property
    def figures(self) -> FigureRecords:
        """Learned figures, looked up by voice."""
        ...

    @property
    def prices(self) -> PriceRecords:
        """Reservation prices of jobs, and the rates behind them."""
        ...

    @property
    def gangs(self) -> GangRecords:
        """Where the members of gangs are."""
        ...

    @property
    def dags(self) -> DagRecords:
        """The DAGs of jobs that have not ended."""
        ...

    @property
    def estimates(self) -> Estimates:
        """The source of run-time estimates."""
        ...

    def members(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job, by index."""
        ...

    def in_hand(self, job: JobId) -> tuple[TaskRun, ...]:
        """The task runs of a job that have an instance or a target."""
        ...

    def task(self, run: TaskRun) -> TaskSpec:
        """The task that a task run carries out."""
        ...

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that take room on an instance."""
        ...

    def can_place(self, instance: InstanceId) -> bool:
        """Whether tasks may be given to the instance, now or when it is ready."""
        ...

    def reservation(self, run: TaskRun) -> Reservation:
        """The reservation price of a task run's task, and the offering with that price."""
        ...


class PlanningRecords(Records, Protocol):
    """Records of which snapshots can be made."""

    @property
    def view_cache(self) -> ViewCache:
        """The parts of snapshots, with notes of those that may be out of date."""
        ...

    @property
    def membership(self) -> Membership:
        """Which instances stand in pools or are being drained."""
        ...

    @property
    def with_deadlines(self) -> Collection[JobId]:
        """Jobs with a deadline that have not ended, in order of submission."""
        ...

    @property
    def handed(self) -> Mapping[JobId, Handed]:
        """The priorities above their own that jobs have from others, which wait for them."""
        ...

    @property
    def counters(self) -> Counters:
        """Counters of the cluster, which only grow."""
        ...


def crew(records: Records, job: JobId) -> Iterator[TaskRun]:
    """The members of a gang that run together: the first ones of an elastic gang, else all."""
    return islice(records.members(job), records.jobs[job].members)


def placed(records: Records, job: JobId) -> list[TaskRun]:
    """The members of a gang that have an instance, by index."""
    if records.jobs[job].spec.elastic.least is None:
        members: Iterable[TaskRun] = records.members(job)
    else:  # most members of an elastic gang may rest
        members = sorted(records.in_hand(job), key=lambda run: (run.index, len(run.id), run.id))
    return [member for member in members if member.instance is not None]


def total_demand(records: Records, runs: Iterable[TaskRun], on: Instance | Offering) -> Resources:
    """The total demand of task runs on an instance, or on an offering of its family."""
    family = (on.offering if isinstance(on, Instance) else on).type.family
    demands = []
    for run in runs:
        need = records.task(run).demand_on(family)
        assert need is not None, f"{run.id} cannot run on {family}"
        demands.append(need)
    return total(demands)
