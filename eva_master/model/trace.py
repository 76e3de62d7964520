"""Traces: the jobs that arrive at a cluster over time, recorded or generated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from eva_master.model.accounting.worth import Worth
from eva_master.model.catalog import base_family, is_spot
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.job import ParameterServers
from eva_master.model.resources import Resources
from eva_master.model.tenants.tenancy import Quota
from eva_wire.values.bounds import DEFAULT_TENANT, JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId, Workload, base_of

SLOT = Resources(gpus=0, milli_cpus=1_000, memory_mib=1_024)
"""Demand of a task of a trace that states no demands."""
GPU_SLOT = Resources(gpus=1, milli_cpus=1_000, memory_mib=1_024)
"""Demand of a task of which the trace says only that it trains on a GPU."""


class SpotUse(StrEnum):
    """Whether a job may run on spot instances, as in a job file."""

    NEVER = "never"
    ALLOWED = "allowed"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class TraceTask:
    """One task of a recorded job.

    Attributes:
        demand: Demand on a family without an entry of its own; `None` if only the families in
            `demand_by_family` can host it.
        demand_by_family: Demand on certain families; `None` where it cannot run. Sorted.
        image: The image that must be on an instance before the task starts.
        fetch_ms: Time to download its files to an instance.
        build_ms: Time to build its image, the first time on each instance.
        kill_ms: Time to stop it.
        upload_ms: Time to upload its checkpoint after that.
        speed_by_family: Speed on certain families, in millionths of the speed at which it takes its
            duration; a million on all others. Sorted.
        duration_ms: For a task of an array, its running time alone at a speed of a million; `None`
            for that of its job.
    """

    demand: Resources | None
    demand_by_family: tuple[tuple[Family, Resources | None], ...] = ()
    image: str = ""
    fetch_ms: int = 0
    build_ms: int = 0
    kill_ms: int = 0
    upload_ms: int = 0
    speed_by_family: tuple[tuple[Family, int], ...] = ()
    duration_ms: int | None = None

    def speed_on(self, family: Family) -> int:
        """Speed on a family, in millionths; equal on spot and on demand."""
        machine = base_family(family)
        return next((speed for name, speed in self.speed_by_family if name == machine), MILLION)

    def resolved(
        self, families: Iterable[Family], spot: SpotUse | None = None
    ) -> tuple[tuple[Family, Resources], ...]:
        """The demand on each family that can host the task, sorted, as a `TaskSpec` has it.

        Args:
            families: Families on sale.
            spot: Whether it may run on spot instances, if its job says so: with the demand that it
                has on the same family on demand, unless it has one of its own.
        """
        own = dict(self.demand_by_family)
        demands = []
        for family in sorted(set(families)):
            need = own.get(family, self.demand)
            if spot is not None and is_spot(family):
                need = own.get(family, own.get(base_family(family), self.demand))
            unwanted = {None: False, SpotUse.ALLOWED: False, SpotUse.ONLY: not is_spot(family)}
            if need is not None and not unwanted.get(spot, is_spot(family)):
                demands.append((family, need))
        return tuple(demands)


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job as it arrives.

    Attributes:
        id: Unique in the trace.
        workload: The workload whose throughput is learned, such as ``resnet18[3]``. The part before
            the bracket is its base, the row of the interference table.
        arrival_ms: Milliseconds after the beginning of the trace.
        duration_ms: Running time alone, without delays, on families where its tasks' speed is a
            million. Of an array it is that of each task, and what its user states: tasks may have
            durations of their own.
        init_ms: Time from the start of its last task to first progress; of an array, of each.
        steps_per_s: Standalone throughput, in millionths of an iteration per second.
        total_steps: Whole iterations of the job, of an array those of each task without a duration
            of its own; 0 if it is shorter than one.
        tasks: At least one.
        owner: The user who submits it; jobs with an empty owner all have the same one.
        tenant: The tenant that it is accounted to.
        priority: Larger is more urgent.
        kind: Gang or array.
        concurrency: How many tasks of an array may have a place at a time; `None` for all.
        dag: Label of the DAGs to whose kind it belongs; empty if it is no stage of one.
        after: Jobs before it in the trace, of the same owner, that have to succeed before it runs.
        split_batch: Whether the members of a gang divide each batch by how fast they are.
        states_rates: Whether its user states the speed of its tasks on each family. Other users
            state the number of iterations in place of the run time.
        counts_iterations: Whether its programs count iterations at `steps_per_s`, and its user
            states rates in them; those of all others count milliseconds of work.
        least: Of an elastic gang: at least so many of its tasks run; `None` if all of a gang run.
            Its tasks are alike, and its duration is that of one of them by itself: any number of
            members does that number of times as much.
        apart_ppm: Of an elastic gang: how fast it is while its members are on several instances,
            against as many on one, in millionths.
        worth: Worth of its completion, if the trace states it.
        ps: Communication with parameter servers, if the trace states it.
        spot: Whether it may run on spot instances; `None` where its demands say so: by the families
            of spot instances themselves, or by any family.
        within_ms: How long after its arrival it is to be done; `None` if it has no deadline.
        checkpoint_interval_ms: Interval at which its program stores checkpoints; 0 for the default
            interval.
        told_ppm: Run time stated by its user, in millionths of the true one; a million for a true
            statement.
    """

    id: str
    workload: Workload
    arrival_ms: int
    duration_ms: int
    tasks: tuple[TraceTask, ...]
    init_ms: int = 0
    steps_per_s: int = 1_000_000
    total_steps: int = 0
    owner: str = ""
    tenant: str = DEFAULT_TENANT
    priority: int = 0
    kind: JobKind = JobKind.GANG
    concurrency: int | None = None
    dag: str = ""
    after: tuple[str, ...] = ()
    split_batch: bool = False
    states_rates: bool = True
    counts_iterations: bool = False
    least: int | None = None
    apart_ppm: int = MILLION
    worth: Worth | None = None
    ps: ParameterServers | None = None
    spot: SpotUse | None = None
    within_ms: int | None = None
    checkpoint_interval_ms: int = 0
    told_ppm: int = MILLION

    @property
    def is_array(self) -> bool:
        """Whether its tasks are independent of one another."""
        return self.kind is JobKind.ARRAY

    def size_ppm(self, members: int, *, apart: bool) -> int:
        """How fast so many members of a gang are against one, in millionths."""
        if self.least is None:
            return MILLION
        return members * (self.apart_ppm if apart else MILLION)


@dataclass(frozen=True, slots=True)
class EarlierJob:
    """A job that ended before a trace begins. Only its run time is used, for learning.

    Attributes:
        owner: The user who submitted it, as in `TraceJob`.
        name: Its name.
        workload: Workload of its tasks.
        demand: Demand of each task.
        mean_ms: Mean run time of its tasks, at least 1. The job counts as one finished task, since
            the spread of its run times is unknown.
        dag: Label of the DAGs to whose kind it belonged; empty if it was no stage of one.
        dag_number: Number of its DAG among these. Jobs of one DAG stand side by side.
    """

    owner: str
    name: str
    workload: Workload
    demand: Resources
    mean_ms: int
    dag: str = ""
    dag_number: int = 0


@dataclass(frozen=True, slots=True)
class Network:
    """Network of a trace's servers for training with parameter servers.

    Attributes:
        worker_kbps: Bandwidth of a worker, in kilobits per second.
        ps_kbps: Bandwidth of a parameter server, in kilobits per second.
        servers: Number of parameter servers that each node has room for; sorted.
    """

    worker_kbps: int
    ps_kbps: int
    servers: tuple[tuple[InstanceId, int], ...]


@dataclass(frozen=True, slots=True)
class TraceTenant:
    """A tenant of a trace with a fleet of its own.

    Attributes:
        name: As jobs have it.
        quota: The GPUs that it brought.
        nodes: The nodes that it brought.
    """

    name: str
    quota: Quota
    nodes: tuple[InstanceId, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in the order of their arrival.

    Attributes:
        name: The trace's name, for people.
        jobs: Sorted by arrival, then by id.
        past: Jobs that ended before it begins, in the order in which they did.
        nodes: The fleet that it belongs to; empty if it says nothing of machines.
        tenants: Tenants that brought these nodes, sorted by name; empty if they have no owner.
        network: Network of the nodes for parameter servers; `None` if unknown.
        notes: Notes on reading the source, for users: omissions and assumptions.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    past: tuple[EarlierJob, ...] = ()
    nodes: tuple[OwnedNode, ...] = ()
    tenants: tuple[TraceTenant, ...] = ()
    network: Network | None = None
    notes: tuple[str, ...] = ()

    def using_spot(self, use: SpotUse) -> Trace:
        """This trace, with spot use set for jobs that do not state it."""
        jobs = (replace(job, spot=use) if job.spot is None else job for job in self.jobs)
        return replace(self, jobs=tuple(jobs))


def misplaced(jobs: Iterable[TraceJob]) -> Iterator[tuple[str, str]]:
    """Jobs that depend on a job that they cannot wait for, with the reason.

    Args:
        jobs: Jobs of a trace, in its order.
    """
    owners: dict[str, str] = {}
    for job in jobs:
        for name in job.after:
            if name not in owners:
                yield job.id, f"no job {name!r} arrives before it"
            elif owners[name] != job.owner:
                yield job.id, f"the job {name!r} has another owner"
        owners[job.id] = job.owner


@dataclass(frozen=True, slots=True)
class Interference:
    """Measured interference between workloads, which is the truth in a simulation.

    Attributes:
        pairs: Normalised throughput of a workload beside one other, in millionths. Both are bases
            (see `eva_wire.values.ids.base_of`).
        default_ppm: Normalised throughput of a pair that was not measured, in millionths.
    """

    pairs: Mapping[tuple[Workload, Workload], int] = field(default_factory=dict)
    default_ppm: int = MILLION

    def __call__(self, workload: Workload, others: tuple[Workload, ...]) -> float:
        """Normalised throughput beside any number of others: the product over the pairs.

        Args:
            workload: The workload. A variant behaves as its base.
            others: The workloads that share its instance. The result is the same to the last bit
                only for the same order.
        """
        base, speed = base_of(workload), 1.0
        for other in others:
            speed *= self.pairs.get((base, base_of(other)), self.default_ppm) / MILLION
        return speed
