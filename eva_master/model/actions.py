"""What is to be done: the machine's only output. Every action may be repeated."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.catalog import Offering
from eva_master.model.errors import EvaError
from eva_master.model.ids import InstanceId, JobId, RunId
from eva_master.model.job import Program
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources


@dataclass(frozen=True, slots=True)
class LaunchInstance:
    """Have the cloud run an instance; the same (instance, attempt) never makes two.

    Attributes:
        attempt: The number of the launch. A master launches every instance once, however often it
            repeats the action; a higher number launches one again that was refused.
        existed: The cloud has said before that it runs: if it is not there now, it is gone, however
            little the cloud remembers of it.
    """

    instance: InstanceId
    offering: Offering
    attempt: int = 1
    existed: bool = False


@dataclass(frozen=True, slots=True)
class TerminateInstance:
    """Have the cloud remove an instance, known to it or not."""

    instance: InstanceId


@dataclass(frozen=True, slots=True)
class SyncCloud:
    """Ask the cloud what exists; answered by `CloudListed`."""


@dataclass(frozen=True, slots=True)
class Gang:
    """How the members of a gang of several find each other.

    Attributes:
        rank: The member's number, from 0.
        size: How many members there are.
        address: Under which the others reach the instance of the member of rank 0.
        port: On which that member may listen; no other gang's on any instance.
    """

    rank: int
    size: int
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """All that a worker must know of one attempt of one task run.

    Attributes:
        index: The task's number in its job.
        workload: For the agent's metrics.
        demand: What the attempt takes of the instance.
        resume: Checkpoint generation to start from, 0 for none; `None` for the newest one in the
            object store.
        checkpoint_of: Whose checkpoint that is, `None` for the task run's own.
        gang: `None` for a task on its own.
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


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start an attempt; a worker never starts the same (task run, attempt) twice."""

    instance: InstanceId
    order: TaskOrder


@dataclass(frozen=True, slots=True)
class StopTask:
    """Stop an attempt; one that is not known there will never be started there.

    Attributes:
        grace_ms: From SIGTERM to SIGKILL; 0 kills at once.
    """

    instance: InstanceId
    run: RunId
    attempt: int
    grace_ms: int


@dataclass(frozen=True, slots=True)
class FetchFiles:
    """Have a worker fetch what the task run's next attempt needs; answered by `WorkerFetched`."""

    instance: InstanceId
    order: TaskOrder


@dataclass(frozen=True, slots=True)
class ForgetTask:
    """The exit of this attempt is written down; the worker may drop its record."""

    instance: InstanceId
    run: RunId
    attempt: int


@dataclass(frozen=True, slots=True)
class SyncWorker:
    """Ask a worker for a report of everything it knows."""

    instance: InstanceId


@dataclass(frozen=True, slots=True)
class ListCheckpoints:
    """Ask which checkpoints of a job are stored; answered by `CheckpointsListed`, once.

    Asked only while nothing of the job runs, so that nothing is being stored.

    Attributes:
        number: Of the question; no other has the same.
        runs: Whose.
        give_up_after: What was stored after this generation is removed first.
    """

    number: int
    job: JobId
    runs: tuple[RunId, ...]
    give_up_after: int | None = None


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """Ask the planner; answered by `PlanReady` or `PlanFailed` of the same round."""

    round: int
    snapshot: Snapshot
    memory: PolicyMemory | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a user's command: the job it concerns, or why it was refused."""

    command: str
    job: JobId | None
    error: EvaError | None = None


CloudAction = LaunchInstance | TerminateInstance | SyncCloud
WorkerAction = StartTask | StopTask | FetchFiles | ForgetTask | SyncWorker
Action = CloudAction | WorkerAction | ListCheckpoints | RequestPlan | Reply
