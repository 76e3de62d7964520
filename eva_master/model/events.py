"""What happens: the machine's only input."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.ids import InstanceId, JobId, Millis, OfferingId, Price, RunId
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.records import Progress
from eva_master.model.resources import Resources


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user hands in a validated job; answered by a `Reply` to `command`."""

    command: str
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user wants a job to end; answered by a `Reply` to `command`."""

    command: str
    job: JobId


@dataclass(frozen=True, slots=True)
class InstanceUp:
    """The cloud runs and bills the instance since `up_ms`."""

    instance: InstanceId
    up_ms: Millis


@dataclass(frozen=True, slots=True)
class InstanceGone:
    """The cloud has no such instance any more.

    Attributes:
        up_ms: When billing began, `None` if it never did.
        gone_ms: When billing ended.
        reason: Why, in the cloud's words; empty if it gave none.
    """

    instance: InstanceId
    up_ms: Millis | None
    gone_ms: Millis
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The cloud will not launch the instance; it neither exists nor will.

    Attributes:
        retry_at: When the offering may be tried again.
        reason: The cloud's answer in words for the user.
        also: Other offerings that would be refused for the same reason.
    """

    instance: InstanceId
    retry_at: Millis
    reason: str
    also: tuple[OfferingId, ...] = ()


@dataclass(frozen=True, slots=True)
class Quoted:
    """What offerings cost from now on; those that are not in the catalog are passed over.

    Attributes:
        prices: Offering and price.
    """

    prices: tuple[tuple[OfferingId, Price], ...]


@dataclass(frozen=True, slots=True)
class InstanceInterrupted:
    """The cloud will take an instance away, or says that it may.

    Attributes:
        session: Of the worker that passed it on.
        at_ms: When, `None` if the cloud only recommends to leave.
        reason: In the cloud's words.
    """

    instance: InstanceId
    session: int
    at_ms: Millis | None
    reason: str


@dataclass(frozen=True, slots=True)
class CloudListed:
    """All instances of this cluster that the cloud bills, as asked for by `SyncCloud`."""

    instances: tuple[tuple[InstanceId, Millis], ...]
    """Id and time it came up."""


@dataclass(frozen=True, slots=True)
class CloudTrouble:
    """The cloud does not do what it is asked, or does so again.

    Attributes:
        since_ms: Since when, `None` if it does.
        reason: What it says, and what to do about it, in words for the user.
    """

    since_ms: Millis | None
    reason: str = ""


class Phase(StrEnum):
    """Where an attempt is, as its worker sees it."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    """Over for good: no process of it is left and none will be started."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a worker says of one attempt.

    Attributes:
        exit_code: Of the task's program; negative signal number if a signal ended it; `None`
            unless exited.
        never_started: Exited without having run (a stop overtook the start, or the worker has
            no memory of it).
        stopped: A stop was asked of the attempt before it exited; then any exit is a stop.
        generation: The newest checkpoint generation that is safely in the object store.
        message: Why the start failed, in words for the user.
    """

    run: RunId
    attempt: int
    phase: Phase
    exit_code: int | None = None
    never_started: bool = False
    stopped: bool = False
    generation: int = 0
    progress: Progress | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """An agent opened a session; `reports` lists every attempt that it knows of.

    Attributes:
        session: Grows with every session of the instance; what comes of an older one is stale.
        address: Under which other instances reach this one.
    """

    instance: InstanceId
    session: int
    capacity: Resources
    reports: tuple[RunReport, ...]
    address: str = ""


@dataclass(frozen=True, slots=True)
class WorkerReported:
    """Something changed on a worker."""

    instance: InstanceId
    session: int
    reports: tuple[RunReport, ...]


@dataclass(frozen=True, slots=True)
class WorkerFetched:
    """The files of a task run's next attempt are on the instance."""

    instance: InstanceId
    session: int
    run: RunId


@dataclass(frozen=True, slots=True)
class ProgressSampled:
    """Throughput reports that arrived together; not journalled.

    Attributes:
        samples: Copy, attempt, progress; `Progress.rate` is for the machine to fill in.
        after_silence: Several reports were due before and did not come, or nobody was there to
            take them.
    """

    instance: InstanceId
    session: int
    samples: tuple[tuple[RunId, int, Progress], ...]
    after_silence: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A session ended.

    Attributes:
        goodbye: The agent said that it leaves (its instance is shutting down).
    """

    instance: InstanceId
    session: int
    goodbye: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointsListed:
    """What is stored of a job's checkpoints, as asked for by `ListCheckpoints`.

    Attributes:
        number: As in the question; the answer to an older one is stale.
        generations: The complete ones of each task run, ascending.
        error: Why the object store did not answer, in words for the user; then nothing is known.
    """

    number: int
    job: JobId
    generations: tuple[tuple[RunId, tuple[int, ...]], ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class PlanReady:
    """The planner's answer to `RequestPlan`."""

    round: int
    plan: Plan
    memory: PolicyMemory | None


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The planner broke down in this round; the next one starts afresh."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; nothing else happened."""


Event = (
    JobSubmitted
    | CancelRequested
    | InstanceUp
    | InstanceGone
    | LaunchFailed
    | Quoted
    | InstanceInterrupted
    | CloudListed
    | CloudTrouble
    | WorkerRegistered
    | WorkerReported
    | WorkerFetched
    | ProgressSampled
    | WorkerLost
    | CheckpointsListed
    | PlanReady
    | PlanFailed
    | Tick
)
