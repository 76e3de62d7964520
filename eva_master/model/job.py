"""A validated request of a user: a job and its tasks, with nothing left to interpret."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from eva_master.model.accounting.worth import Worth
from eva_master.model.arithmetic.loop_time import AS_LOOP, WallClock
from eva_master.model.forks.merging import MergeRule
from eva_master.model.resources import Resources
from eva_master.model.secrets import NeededSecrets
from eva_master.model.values import quick, replace
from eva_wire.values.bounds import DEFAULT_TENANT, JobKind
from eva_wire.values.ids import MILLION, Family, JobId, RunId, Workload, run_id
from eva_wire.values.notices import Topic

ONCE_A_MINUTE = MergeRule()


class Latency(StrEnum):
    """Whether a job counts as short."""

    AUTO = "auto"
    """By how long its tasks are expected to take."""
    SHORT = "short"
    LONG = "long"


class Stragglers(StrEnum):
    """Treatment of a task that runs for much longer than expected."""

    KEEP = "keep"
    """Do nothing."""
    DUPLICATE = "duplicate"
    """Start a second run where there is room; the first of the two to succeed counts."""


class OnFailure(StrEnum):
    """Reaction of an array to a task that failed for good."""

    STOP = "stop"
    """The array fails with it: its other tasks are stopped. Jobs other than arrays have this."""
    CONTINUE = "continue"
    """The other tasks run on."""
    CAUTIOUS = "cautious"
    """The other tasks run on, unless the first `FIRST_TO_END` tasks that end have all failed. The
    default of arrays, which no job file can state."""


FIRST_TO_END = 10
"""So many failures before the first success stop an array whose job file does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Build:
    """A container image that workers build.

    Attributes:
        context: Digest of the uploaded build context's manifest.
        dockerfile: Path of the Dockerfile in the context.
    """

    context: str
    dockerfile: str = "Dockerfile"


@dataclass(frozen=True, slots=True)
class JobOutputs:
    """Outputs of an earlier job, as an input of a task.

    Attributes:
        name: Name of the input, which is placed in ``$EVA_STORAGE/inputs/NAME``.
        job: The earlier job, of the same owner.
        index: The task whose outputs they are, if it is one task's.
        tasks: Number of tasks, from the first one on, whose outputs they are, each in the directory
            of its index; 0 for those of one task, without a directory.
        path: File or directory below the outputs; empty for all of them.
    """

    name: str
    job: JobId
    index: int = 0
    tasks: int = 0
    path: str = ""

    @property
    def url(self) -> str:
        """The outputs as a job file names them."""
        task = "" if self.tasks else f"/{self.index}"
        return f"job:{self.job}{task}/outputs" + (f"/{self.path}" if self.path else "")


@quick
@dataclass(frozen=True, slots=True)
class Program:
    """The program that a worker runs; the scheduler does not interpret it.

    Attributes:
        run: A shell command.
        env: The user's own environment variables.
        workdir: Digest of the uploaded directory's manifest, `None` for an empty directory.
        inputs: Name and URL of each input, which is placed in ``$EVA_STORAGE/inputs/NAME``.
        image: Reference of the container image; empty for the worker's default.
        build: How to build the image; `None` if it is not built.
        outputs: Inputs that are outputs of earlier jobs, sorted by name.
    """

    run: str
    env: tuple[tuple[str, str], ...] = ()
    workdir: str | None = None
    inputs: tuple[tuple[str, str], ...] = ()
    image: str = ""
    build: Build | None = None
    outputs: tuple[JobOutputs, ...] = ()

    @property
    def text(self) -> int:
        """How many characters its command, variables and inputs have."""
        pairs = (*self.env, *self.inputs)
        return len(self.run) + sum(len(name) + len(value) for name, value in pairs)


@quick
@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a job.

    Attributes:
        workload: Tasks of one workload behave alike.
        program: The program to execute.
        demand: Demand on each family that can host the task; other families cannot. Sorted by
            family.
        throughput: Standalone iterations per second, in millionths, on each family where the user
            states them. Spot families are never listed. Sorted by family.
        reports_steps: Whether the program may report iterations. If not, there is nothing to
            measure, so it need not run alone first.
    """

    workload: Workload
    program: Program
    demand: tuple[tuple[Family, Resources], ...]
    throughput: tuple[tuple[Family, int], ...] = ()
    name: str = ""
    reports_steps: bool = True

    def demand_on(self, family: Family) -> Resources | None:
        """The demand on `family`, `None` where the task cannot run."""
        for name, need in self.demand:
            if name == family:
                return need
        return None

    def throughput_on(self, family: Family) -> float | None:
        """Standalone throughput on `family` as the user stated it; `None` if they did not."""
        rate = next((rate for name, rate in self.throughput if name == family), None)
        return None if rate is None else rate / MILLION


def different(tasks: Sequence[TaskSpec]) -> Sequence[TaskSpec]:
    """The tasks of a job without repetitions; quick where they are all one value."""
    if not tasks or tasks.count(tasks[0]) == len(tasks):
        return tasks[:1]
    return tuple({id(task): task for task in tasks}.values())


class ModelSize(StrEnum):
    """How complex a model is."""

    SMALL = "small"
    MODEST = "modest"
    HIGH = "high"
    EXTRA_HIGH = "extra high"


class DatasetSize(StrEnum):
    """How large a dataset is."""

    S = "S"
    M = "M"
    L = "L"
    XL = "XL"


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a job is to be done.

    Attributes:
        at_ms: The time by the wall clock; `None` if it is counted from the job's submission.
        within_ms: How long after its submission; `None` if a time is stated.
        fails: Whether the job is failed once it is late, rather than going on.
    """

    at_ms: int | None = None
    within_ms: int | None = None
    fails: bool = False

    def due_ms(self, submitted_ms: int, wall: WallClock = AS_LOOP) -> int:
        """The loop's time at which a job is to be done.

        Args:
            submitted_ms: When it was submitted, by the loop's time.
            wall: The wall clock, which a stated time is read from.
        """
        if self.at_ms is not None:
            return wall.loop_ms(self.at_ms)
        return submitted_ms + (self.within_ms or 0)


@dataclass(frozen=True, slots=True)
class ParameterServers:
    """Communication of a job whose workers send gradients to parameter servers.

    Attributes:
        minibatch_us: Time of a mini-batch on a worker, in microseconds.
        update_us: Time of an update after each mini-batch, in microseconds.
        gradient_bytes: Bytes that a worker sends and receives for each mini-batch.
    """

    minibatch_us: int
    update_us: int
    gradient_bytes: int


@dataclass(frozen=True, slots=True)
class Training:
    """Size and communication of a training.

    Attributes:
        batch_size: Examples in a mini-batch, up to `LARGEST_BATCH`.
        model: How complex the model is.
        dataset: How large the dataset is.
        split_batch: Whether the members of a gang divide each batch by their speeds, so that each
            keeps its own pace.
        ps: Communication with parameter servers, if the user states it.
    """

    batch_size: int = 1
    model: ModelSize = ModelSize.SMALL
    dataset: DatasetSize = DatasetSize.S
    split_batch: bool = False
    ps: ParameterServers | None = None


@dataclass(frozen=True, slots=True)
class CheckpointOrigin:
    """Tasks that begin from the checkpoints which an ended job stored for them.

    Attributes:
        job: The ended job.
        tasks: Their indices, ascending.
    """

    job: JobId
    tasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Retry:
    """The tasks of an ended job that a job does again, under their indices.

    Attributes:
        job: The ended job.
        tasks: The indices, ascending; `None` for all tasks.
        origins: Where checkpoints of them may be, the latest first.
    """

    job: JobId
    tasks: tuple[int, ...] | None = None
    origins: tuple[CheckpointOrigin, ...] = ()

    def origins_of(self, index: int) -> tuple[RunId, ...]:
        """The task runs whose checkpoints a task may begin from, the latest first."""
        return tuple(
            run_id(origin.job, index) for origin in self.origins if _holds(origin.tasks, index)
        )


def _holds(ascending: Sequence[int], index: int) -> bool:
    at = bisect_left(ascending, index)
    return at < len(ascending) and ascending[at] == index


@dataclass(frozen=True, slots=True)
class JobStage:
    """Place of a job among jobs that wait for each other.

    Attributes:
        depends_on: The owner's jobs that have to succeed before this one arrives.
        only_ended: Those of `depends_on` that only have to end, in any way.
        dag: Label of the DAGs to whose kind it belongs as a stage; empty if it is no stage. Jobs of
            one owner and label that wait for each other are one DAG.
    """

    depends_on: tuple[JobId, ...] = ()
    only_ended: tuple[JobId, ...] = ()
    dag: str = ""


@dataclass(frozen=True, slots=True)
class Restarts:
    """Durations of a job's stops and starts, as the user states them.

    Attributes:
        grace_period_ms: From SIGTERM to SIGKILL.
        checkpoint_ms: The user's hint of how long a checkpoint takes, `None` to learn it.
        launch_ms: The user's hint of how long a start takes, `None` to learn it.
        checkpoint_interval_ms: Interval at which its program stores checkpoints; 0 if it stores one
            only when stopped.
    """

    grace_period_ms: int = 60_000
    checkpoint_ms: int | None = None
    launch_ms: int | None = None
    checkpoint_interval_ms: int = 0


@dataclass(frozen=True, slots=True)
class FailureRules:
    """Failures of a job's tasks, and what follows them.

    Attributes:
        retries: How many failures are followed by another attempt.
        retry_on: Exit codes that are followed by another attempt though failure is certain.
        fail_on: Exit codes that are followed by no further attempt.
        on_failure: Response of an array to a task that failed for good.
        max_duration_ms: Running time after which the job is failed.
    """

    retries: int = 3
    retry_on: tuple[int, ...] = ()
    fail_on: tuple[int, ...] = ()
    on_failure: OnFailure = OnFailure.STOP
    max_duration_ms: int | None = None


@lru_cache(maxsize=8)
def _lines(text: str) -> list[str]:
    return text.split("\n")


@dataclass(frozen=True, slots=True)
class TaskTable:
    """The table of an array: a row of it has the variables of a task.

    Attributes:
        blob: Name of the blob that holds it; empty in a preview.
        names: Names of the tasks, a line for each; empty if they have none.
    """

    blob: str
    names: str = ""

    def name_of(self, index: int) -> str:
        """The name of a task; empty if it has none."""
        return _lines(self.names)[index] if self.names else ""

    @property
    def all_names(self) -> Sequence[str]:
        """The names of all tasks; empty if they have none."""
        return _lines(self.names) if self.names else ()


@dataclass(frozen=True, slots=True)
class ArrayRules:
    """Order of an array's tasks, and their table.

    Attributes:
        concurrency: How many tasks may have a place at a time; `None` for all.
        stragglers: Treatment of late tasks.
        pilots: Number of tasks that run first, to measure how long the others take; `None` to leave
            it to the policy.
        table: Variables of each task; `None` if the tasks differ by their index alone.
    """

    concurrency: int | None = None
    stragglers: Stragglers = Stragglers.KEEP
    pilots: int | None = None
    table: TaskTable | None = None


@dataclass(frozen=True, slots=True)
class ElasticGang:
    """Sizes of an elastic gang, whose tasks are alike.

    Attributes:
        least: At least so many of its tasks run, the first ones; `None` if all of a gang run.
        scaling: The user's iterations per second with so many members, in millionths, as (members,
            rate) in order.
        scaling_apart: The rates while its members are on several instances, as in `scaling`; empty
            if they do not differ.
    """

    least: int | None = None
    scaling: tuple[tuple[int, int], ...] = ()
    scaling_apart: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ForkRules:
    """Copies of a training that train at once.

    Attributes:
        forks: The most copies; their weights are merged. A job with forks is an array of one task,
            of which each fork is a run.
        merge: How the forks' weights are merged.
    """

    forks: int = 1
    merge: MergeRule = ONCE_A_MINUTE


ONLY_STAGE = JobStage()
USUAL_RESTARTS = Restarts()
USUAL_FAILURES = FailureRules()
USUAL_ARRAY = ArrayRules()
FIXED_SIZE = ElasticGang()
NO_FORKS = ForkRules()
UNKNOWN_TRAINING = Training()


@quick
@dataclass(frozen=True, slots=True)
class JobSpec:
    """A validated job; its optional parts are groups, of which equal defaults are one value.

    Attributes:
        name: Name of the job; active jobs of one owner may share it, unless one of them is
            `unique`.
        owner: The user who submitted it.
        tasks: At least one. A job that repeats some tasks of another has all of that job's tasks.
        kind: Gang or array.
        tenant: The tenant that it is accounted to: that of its owner when it was submitted.
        partition: The partition where it runs unless it was moved; empty for the default partition.
        priority: Larger is more urgent.
        total_steps: Iterations until each task is done, if the user states them.
        duration_ms: Standalone running time of each task, on the family that sets its reservation
            price, if the user states it.
        unique: Whether no other active job of the owner may have its name.
        spans_zones: Whether the members of a gang may be in several zones.
        latency: Whether it counts as short where short jobs have a policy of their own.
        spot_wait_ms: How long it waits for a spot instance although it could run on demand.
        worth: Worth of the job's completion, if the user states it.
        deadline: When it is to be done, if the user states it.
        retry: Tasks of an ended job that it repeats; `None` if it repeats none.
        labels: Key and value of each label, sorted by key.
        max_cost: Micro-dollars that it may be charged in all; `None` for any amount.
        notify: Topics of which it asks that receivers of notices are told.
        secrets: Names of the secrets that its tasks get as environment variables.
        stage: The jobs that it waits for, and its DAG.
        restarts: Durations of its stops and starts.
        failing: Number of attempts, and what ends it.
        array: Order of an array's tasks.
        elastic: Sizes of an elastic gang.
        forking: Copies of a training that train at once.
        training: Size and communication of a training.
    """

    name: str
    owner: str
    tasks: tuple[TaskSpec, ...]
    kind: JobKind = JobKind.GANG
    tenant: str = DEFAULT_TENANT
    partition: str = ""
    priority: int = 0
    total_steps: int | None = None
    duration_ms: int | None = None
    unique: bool = False
    spans_zones: bool = False
    latency: Latency = Latency.AUTO
    spot_wait_ms: int = 0
    worth: Worth | None = None
    deadline: Deadline | None = None
    retry: Retry | None = None
    labels: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    max_cost: int | None = None
    notify: tuple[Topic, ...] = ()
    stage: JobStage = ONLY_STAGE
    restarts: Restarts = USUAL_RESTARTS
    failing: FailureRules = USUAL_FAILURES
    array: ArrayRules = USUAL_ARRAY
    elastic: ElasticGang = FIXED_SIZE
    forking: ForkRules = NO_FORKS
    training: Training = UNKNOWN_TRAINING

    @property
    def sources(self) -> tuple[JobId, ...]:
        """The ended or earlier jobs whose outputs or checkpoints its tasks read."""
        jobs = [read.job for task in different(self.tasks) for read in task.program.outputs]
        if self.retry is not None:
            jobs += [origin.job for origin in self.retry.origins]
        return tuple(dict.fromkeys(jobs))

    @property
    def indices(self) -> Sequence[int]:
        """The indices of its tasks, ascending."""
        if self.retry is None or self.retry.tasks is None:
            return range(len(self.tasks))
        return self.retry.tasks

    @property
    def text(self) -> int:
        """Characters of its labels, and of its tasks' commands, variables and inputs.

        Equal tasks count once; names of a table's rows count, their values do not.
        """
        labels = sum(len(key) + len(value) for key, value in self.labels)
        labels += 0 if self.array.table is None else len(self.array.table.names)
        return labels + sum(task.program.text for task in different(self.tasks))

    @property
    def size(self) -> int:
        """How many tasks it has."""
        return len(self.indices)

    def name_of(self, index: int) -> str:
        """The name of a task; empty if it has none."""
        table = self.array.table
        return self.tasks[index].name if table is None else table.name_of(index)

    @property
    def has_mates(self) -> bool:
        """Whether it is a gang of several tasks; one of a single task begins on its own."""
        return self.kind is JobKind.GANG and len(self.tasks) > 1

    def index_of(self, name: str) -> int | None:
        """The index of the task of a name, `None` if it has none."""
        table = self.array.table
        names = [task.name for task in self.tasks] if table is None else table.all_names
        index = names.index(name) if name and name in names else None
        return index if index is not None and self.has(index) else None

    @property
    def uploads(self) -> frozenset[str]:
        """Names of the blobs that its tasks need: lists of files, and its table."""
        programs = [task.program for task in different(self.tasks)]
        names = {program.workdir for program in programs if program.workdir}
        names |= {program.build.context for program in programs if program.build is not None}
        return frozenset(names if self.array.table is None else {*names, self.array.table.blob})

    def has(self, index: int) -> bool:
        """Whether it has a task of an index."""
        if self.retry is None or self.retry.tasks is None:
            return 0 <= index < len(self.tasks)
        return _holds(self.retry.tasks, index)

    def origins_of(self, index: int) -> tuple[RunId, ...]:
        """The task runs of ended jobs whose checkpoints a task may begin from, the latest first."""
        return () if self.retry is None else self.retry.origins_of(index)

    def of_tasks(self, tasks: tuple[TaskSpec, ...]) -> JobSpec:
        """This job with other tasks, each under its place in the list."""
        return replace(self, tasks=tasks, retry=None)

    @property
    def needed_secrets(self) -> NeededSecrets | None:
        """The secrets that its attempts need; `None` if they need none."""
        return NeededSecrets(self.owner, self.tenant, self.secrets) if self.secrets else None

    @property
    def forked(self) -> bool:
        """Whether copies of its training may train at once."""
        return self.forking.forks > 1

    @property
    def several_runs(self) -> bool:
        """Whether tasks of it may have several runs at once."""
        return self.forked or self.array.stragglers is not Stragglers.KEEP

    @property
    def stands_in_line(self) -> bool:
        """Whether its tasks may stand in a line: those of gangs of several may not."""
        alone = len(self.tasks) == 1 and self.elastic.least is None
        return self.kind is not JobKind.GANG or alone
