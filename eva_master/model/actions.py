"""Actions: the only output of the control loop's state machine. Every action may be repeated."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.forks.merging import MergeRound
from eva_master.model.job import Program
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.model.secrets import NeededSecrets
from eva_master.model.values import quick
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId


@dataclass(frozen=True, slots=True)
class LaunchInstance:
    """Launch an instance. A pair of instance and attempt never launches two.

    Attributes:
        attempt: The number of the launch. The cloud launches an instance once per attempt, however
            often the action is repeated; a higher number follows a refusal.
        existed: Whether the cloud has reported it running before. A cloud that does not know it now
            means that it is gone.
    """

    instance: InstanceId
    offering: Offering
    attempt: int = 1
    existed: bool = False


@dataclass(frozen=True, slots=True)
class TerminateInstance:
    """Terminate an instance, whether or not the cloud knows it."""

    instance: InstanceId


@dataclass(frozen=True, slots=True)
class SyncCloud:
    """Ask the cloud which instances exist; answered by `CloudListed`."""


@dataclass(frozen=True, slots=True)
class ListCatalog:
    """Ask the cloud what it sells; answered by `CatalogListed`."""


@dataclass(frozen=True, slots=True)
class Gang:
    """How the members of a gang of several find each other.

    Attributes:
        rank: The member's number, from 0.
        size: How many members there are.
        address: Address at which the others reach the instance of the member of rank 0.
        port: Port that that member may listen on. No other gang uses it on any instance.
        batch_ppm: The part of each batch that the member does, in millionths; 0 if the members do
            not divide batches by their speed.
    """

    rank: int
    size: int
    address: str
    port: int
    batch_ppm: int = 0


@dataclass(frozen=True, slots=True)
class ForkOrder:
    """Instructions to a fork about the other forks of its job.

    Attributes:
        number: Its own number, from 0.
        forks: The most forks that may train at once.
        every_ms: Time from one merge to the next.
        check: The program's metric by which a merge is judged; empty to judge none.
        larger: Whether a larger `check` is better.
        patience_ms: How long to wait for a merge.
    """

    number: int
    forks: int
    every_ms: int
    check: str = ""
    larger: bool = False
    patience_ms: int = 0


@quick
@dataclass(frozen=True, slots=True)
class TaskOrder:
    """Everything that a worker must know about one attempt of a task run.

    Attributes:
        index: The task's number in its job.
        workload: The workload's name, for the agent's metrics.
        demand: The resources that the attempt takes of the instance.
        resume: Checkpoint generation to start from, 0 for none; `None` for the newest one in the
            object store.
        checkpoint_of: The task run that stored that checkpoint; `None` for this one.
        origins: Task runs of ended jobs, the latest first: it begins from the newest checkpoint of
            the first that has one, while it has none of its own. Without meaning if `resume` says
            what it begins from.
        gang: How the members of its gang find each other; `None` for a single task.
        tasks: How many tasks its job has.
        outputs_stored: Whether its outputs go to the object store even where instances share a
            directory, since its task may have several runs.
        fork: How it and the other forks of its job are merged; `None` if it has none.
        table: Name of the blob whose row of its index has further variables; empty for none.
        secrets: The secrets that it needs, whose values no order states; `None` for none.
    """

    run: RunId
    attempt: int
    job: JobId
    index: int
    workload: str
    program: Program
    demand: Resources
    grace_period_ms: int
    resume: int | None = None
    checkpoint_of: RunId | None = None
    gang: Gang | None = None
    tasks: int = 1
    outputs_stored: bool = False
    fork: ForkOrder | None = None
    origins: tuple[RunId, ...] = ()
    table: str = ""
    secrets: NeededSecrets | None = None


@quick
@dataclass(frozen=True, slots=True)
class StartTask:
    """Start an attempt; a worker never starts the same (task run, attempt) twice."""

    instance: InstanceId
    order: TaskOrder


@dataclass(frozen=True, slots=True)
class StopTask:
    """Stop an attempt. A worker that does not know it will never start it.

    Attributes:
        grace_ms: Time from SIGTERM to SIGKILL; 0 kills at once.
    """

    instance: InstanceId
    run: RunId
    attempt: int
    grace_ms: int


@dataclass(frozen=True, slots=True)
class FetchFiles:
    """Fetch the files of a task run's next attempt; answered by `WorkerFetched`."""

    instance: InstanceId
    order: TaskOrder


@quick
@dataclass(frozen=True, slots=True)
class ForgetTask:
    """Acknowledge the exit of an attempt: it is journalled, and the worker may drop its record."""

    instance: InstanceId
    run: RunId
    attempt: int


@dataclass(frozen=True, slots=True)
class TellMerge:
    """Tell a fork of the epoch that is under way; answered by `PartGiven` and `PartsMerged`.

    The newest one counts; one of an earlier epoch than was told before changes nothing.
    """

    instance: InstanceId
    run: RunId
    attempt: int
    round: MergeRound


@dataclass(frozen=True, slots=True)
class SyncWorker:
    """Ask a worker to report all attempts that it knows."""

    instance: InstanceId


@dataclass(frozen=True, slots=True)
class ListCheckpoints:
    """Ask which checkpoints of a job are stored; answered by `CheckpointsListed`, once.

    The request is made only while no task of the job runs, so that nothing is being stored.

    Attributes:
        number: Identifies the request.
        runs: The task runs whose checkpoints are asked for.
        give_up_after: Newer generations than this one are removed first; `None` to remove none.
        discard: Task runs, out of `runs`, of which all generations are removed first.
        origins: Task runs of ended jobs whose checkpoints are listed too; nothing of theirs is
            removed.
    """

    number: int
    job: JobId
    runs: tuple[RunId, ...]
    give_up_after: int | None = None
    discard: tuple[RunId, ...] = ()
    origins: tuple[RunId, ...] = ()


@dataclass(frozen=True, slots=True)
class PlaceOutputs:
    """Move the outputs of a successful extra run to the place of its task's outputs.

    The request is made once no other run of the task can write; answered by `OutputsPlaced`.

    Attributes:
        run: The extra run.
        own: The task's own run, whose outputs are replaced.
    """

    job: JobId
    run: RunId
    own: RunId


@dataclass(frozen=True, slots=True)
class RemoveResults:
    """Remove what the tasks of an ended job have stored; answered by `ResultsRemoved`.

    Attributes:
        by: The user who had it removed; empty for the end of `results_kept`.
    """

    job: JobId
    by: str = ""


@dataclass(frozen=True, slots=True)
class FindExpired:
    """Ask which jobs ended after a time and up to another one; answered by `ResultsExpired`.

    Attributes:
        after_ms: The earlier time.
        until_ms: The later time.
        most: About how many jobs are wanted, the earliest first.
    """

    after_ms: Millis
    until_ms: Millis
    most: int


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """Ask the planner; answered by `PlanReady` or `PlanFailed` of the same round.

    Attributes:
        partition: The partition to plan; empty if the cluster is not divided.
    """

    round: int
    snapshot: Snapshot
    memory: PolicyMemory | None
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a user's command: the job it concerns, if any, or why it was refused.

    Attributes:
        owner: The user who gave the command; ids of different users may be equal.
    """

    command: str
    job: JobId | None
    error: EvaError | None = None
    owner: str = ""


CloudAction = LaunchInstance | TerminateInstance | SyncCloud | ListCatalog
WorkerAction = StartTask | StopTask | FetchFiles | ForgetTask | TellMerge | SyncWorker
StoreAction = ListCheckpoints | PlaceOutputs | RemoveResults | FindExpired
Action = CloudAction | WorkerAction | StoreAction | RequestPlan | Reply
