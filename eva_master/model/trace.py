"""Traces: the jobs that arrive at a cluster over time, recorded or generated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from eva_master.model.accounting.tenants import DEFAULT_TENANT
from eva_master.model.accounting.worth import Worth
from eva_master.model.catalog import base_family, is_spot
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.ids import MILLION, Family, InstanceId, Workload, base_of
from eva_master.model.job import JobKind, ParameterServers
from eva_master.model.planning.tenancy import Quota
from eva_master.model.resources import Resources

SLOT = Resources(gpus=0, milli_cpus=1_000, memory_mib=1_024)
"""What a task of a trace takes that says nothing of demands."""
GPU_SLOT = Resources(gpus=1, milli_cpus=1_000, memory_mib=1_024)
"""What a task takes of which the trace says only that it trains on a GPU."""


class SpotUse(StrEnum):
    """Whether a job may run on spot instances, as in a job file."""

    NEVER = "never"
    ALLOWED = "allowed"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class TraceTask:
    """One task of a recorded job.

    Attributes:
        demand: What it needs on a family without an entry of its own; `None` if only the families
            in `demand_by_family` can host it.
        demand_by_family: What it needs on certain families; `None` where it cannot run. Sorted.
        image: The image that must be on an instance before the task starts.
        fetch_ms: Time to download its files to an instance.
        build_ms: Time to build its image, the first time on each instance.
        kill_ms: Time to stop it.
        upload_ms: Time to upload its checkpoint after that.
        speed_by_family: How fast it runs on certain families, in millionths of the speed at which
            it takes its duration; a million on all others. Sorted.
        duration_ms: Of a task of an array, its running time alone where its speed is a million;
            `None` for that of its job.
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
        """How fast it runs on a family, in millionths; spot or not."""
        machine = base_family(family)
        return next((speed for name, speed in self.speed_by_family if name == machine), MILLION)

    def resolved(
        self, families: Iterable[Family], spot: SpotUse | None = None
    ) -> tuple[tuple[Family, Resources], ...]:
        """The demand on each family that can host the task, sorted, as a `TaskSpec` has it.

        Args:
            families: Those on sale.
            spot: Whether it may run on spot instances, if its job says so: with the demand that it
                has on the same family on demand, unless it has one of its own.
        """
        own = dict(self.demand_by_family)
        found = []
        for family in sorted(set(families)):
            need = own.get(family, self.demand)
            if spot is not None and is_spot(family):
                need = own.get(family, own.get(base_family(family), self.demand))
            unwanted = {None: False, SpotUse.ALLOWED: False, SpotUse.ONLY: not is_spot(family)}
            if need is not None and not unwanted.get(spot, is_spot(family)):
                found.append((family, need))
        return tuple(found)


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
        owner: Who submits it; empty for the same as all others of whom nothing is said.
        tenant: Whom it is accounted to.
        priority: Larger is more urgent.
        kind: Gang or array.
        concurrency: How many tasks of an array may have a place at a time; `None` for all.
        dag: What the DAGs of its kind are labelled; empty if it is no stage of one.
        after: Jobs before it in the trace, of the same owner, that have to succeed before it runs.
        split_batch: Whether the members of a gang divide each batch by how fast they are.
        states_rates: Whether its user states how fast its tasks are on each family. Who does not
            states the number of their iterations in place of how long they take.
        counts_iterations: Whether its programs count iterations at `steps_per_s`, and its user
            states rates in them; those of all others count milliseconds of work.
        least: Of an elastic gang: at least so many of its tasks run; `None` if all of a gang run.
            Its tasks are alike, and its duration is that of one of them by itself: any number of
            members does that number of times as much.
        apart_ppm: Of an elastic gang: how fast it is while its members are on several instances,
            against as many on one, in millionths.
        worth: What it is worth that the job is done, if the trace says so.
        ps: What it trains with, if the trace says so.
        spot: Whether it may run on spot instances; `None` where its demands say so: by the families
            of spot instances themselves, or by any family.
        within_ms: How long after its arrival it is to be done; `None` if it has no deadline.
        checkpoint_interval_ms: How often its program stores a checkpoint by itself; 0 for as often
            as programs do of which nothing is said.
        told_ppm: How much longer its user says that it takes than it does, in millionths of the
            truth; a million for who does not err or lie.
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
    """A job that ended before a trace begins; nobody runs it, but it has taught how long jobs take.

    Attributes:
        owner: Who submitted it; as that of a `TraceJob`.
        name: Its name.
        workload: Of its tasks.
        demand: What each of them needed.
        mean_ms: How long they took on average, at least 1. It counts as one finished task, since
            nothing is known of how far they were apart.
        dag: What the DAGs of its kind are labelled; empty if it was no stage of one.
        dag_number: Which of these it belonged to. Jobs of one DAG stand side by side.
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
    """What servers of a trace have for programs that train with parameter servers.

    Attributes:
        worker_kbps: Bandwidth of a worker, in kilobits per second.
        ps_kbps: Bandwidth of a parameter server, likewise.
        servers: How many parameter servers each node has room for; sorted.
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
        tenants: Who brought these nodes; empty if they are nobody's, sorted by name.
        network: What the nodes have for parameter servers; `None` if nothing is known of it.
        notes: How its source was read, for people: what was left out and what was assumed.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    past: tuple[EarlierJob, ...] = ()
    nodes: tuple[OwnedNode, ...] = ()
    tenants: tuple[TraceTenant, ...] = ()
    network: Network | None = None
    notes: tuple[str, ...] = ()

    def using_spot(self, use: SpotUse) -> Trace:
        """The same in which jobs that say nothing of spot instances use them so."""
        jobs = (replace(job, spot=use) if job.spot is None else job for job in self.jobs)
        return replace(self, jobs=tuple(jobs))


def misplaced(jobs: Iterable[TraceJob]) -> Iterator[tuple[str, str]]:
    """Jobs that are to run after what cannot be waited for, and why.

    Args:
        jobs: Those of a trace, in its order.
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
            (see `eva_master.model.ids.base_of`).
        default_ppm: The same for a pair that was not measured.
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
