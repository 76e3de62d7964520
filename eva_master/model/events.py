"""Events: the only input of the control loop's state machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.catalog import Catalog
from eva_master.model.fleet.nodes import NodeVerb
from eva_master.model.forks.merging import PartFate
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.progress import Progress
from eva_master.model.records import Ended
from eva_master.model.resources import Resources
from eva_master.model.secrets import SecretName
from eva_master.model.values import quick
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId, Price, RunId


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A user submits a validated job; answered by a `Reply` to `command`.

    Attributes:
        command: Id of the submission among the commands of the job's owner.
        ended: Outcomes of dependencies that have ended, as the caller knows them. The control loop
            may have forgotten a job that ended long ago.
        operator: Whether an operator submits it; operators may state any priority.
    """

    command: str
    spec: JobSpec
    ended: tuple[Ended, ...] = ()
    operator: bool = False


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user cancels a job; answered by a `Reply` to `command`.

    Attributes:
        owner: The user who gave the command.
        now: Whether its tasks are killed at once, without a grace period.
    """

    command: str
    job: JobId
    owner: str = ""
    now: bool = False


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """A user has a job run in another partition; answered by a `Reply` to `command`.

    Attributes:
        owner: The user who gave the command.
        operator: Whether that user is an operator; operators may use every partition.
    """

    command: str
    job: JobId
    partition: str
    owner: str = ""
    operator: bool = False


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    """A user suspends a job; answered by a `Reply` to `command`.

    Attributes:
        owner: The user who gave the command.
    """

    command: str
    job: JobId
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """A user has a suspended job go on; answered likewise.

    Attributes:
        owner: The user who gave the command.
        max_cost: New most that the job may cost, in micro-dollars; `None` to leave that.
    """

    command: str
    job: JobId
    owner: str = ""
    max_cost: int | None = None


@dataclass(frozen=True, slots=True)
class NodeRequested:
    """An operator asks something of an owned node; answered by a `Reply` to `command`.

    Attributes:
        owner: The user who gave the command.
    """

    command: str
    node: InstanceId
    verb: NodeVerb
    owner: str = ""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """An operator gives an instance up; answered by a `Reply` to `command`.

    Attributes:
        moves: Whether its tasks are to move elsewhere instead of finishing there.
        owner: The user who gave the command.
    """

    command: str
    instance: InstanceId
    moves: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SecretChanged:
    """A secret was set or removed; answered by a `Reply` to `command`.

    Attributes:
        present: Whether it is set now.
        owner: The user who gave the command.
    """

    command: str
    secret: SecretName
    present: bool
    owner: str = ""


@dataclass(frozen=True, slots=True)
class SecretsListed:
    """All secrets that are set when the master starts."""

    secrets: frozenset[SecretName]


@dataclass(frozen=True, slots=True)
class SecretsRefused:
    """An attempt cannot be started, since secrets that it needs are not set or not readable.

    Attributes:
        secrets: The secrets that would have been used.
    """

    run: RunId
    attempt: int
    secrets: tuple[SecretName, ...]


@dataclass(frozen=True, slots=True)
class InstanceUp:
    """The cloud has been running and billing the instance since `up_ms`."""

    instance: InstanceId
    up_ms: Millis


@dataclass(frozen=True, slots=True)
class InstanceGone:
    """The instance no longer exists in the cloud.

    Attributes:
        up_ms: When billing began, `None` if it never did.
        gone_ms: When billing ended.
        reason: The cloud's reason; empty if it gave none.
        reclaimed: Whether the cloud took it back for another customer, as it does with spot
            instances; then nothing was wrong with it.
    """

    instance: InstanceId
    up_ms: Millis | None
    gone_ms: Millis
    reason: str = ""
    reclaimed: bool = False


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The cloud refused to launch the instance, which will never exist.

    Attributes:
        retry_at: When the offering may be tried again.
        reason: The cloud's answer in words for the user.
        also: Other offerings that the cloud would refuse for the same reason.
    """

    instance: InstanceId
    retry_at: Millis
    reason: str
    also: tuple[OfferingId, ...] = ()


@dataclass(frozen=True, slots=True)
class Quoted:
    """New prices of offerings. Offerings that are not in the catalog are ignored.

    Attributes:
        prices: Pairs of offering and price, which is that of the instance alone.
    """

    prices: tuple[tuple[OfferingId, Price], ...]


@dataclass(frozen=True, slots=True)
class InstanceInterrupted:
    """The cloud will take an instance away, or announces that it may.

    Attributes:
        session: Session of the worker that reported it.
        at_ms: When it is taken away; `None` if the cloud only recommends to leave.
        reason: The cloud's message.
    """

    instance: InstanceId
    session: int
    at_ms: Millis | None
    reason: str


@dataclass(frozen=True, slots=True)
class CloudListed:
    """All instances of this cluster that the cloud bills; the answer to `SyncCloud`."""

    instances: tuple[tuple[InstanceId, Millis], ...]
    """The id of each instance and the time it came up."""


@dataclass(frozen=True, slots=True)
class CatalogListed:
    """Everything that the cloud sells, or why it did not say; the answer to `ListCatalog`.

    Attributes:
        catalog: The offerings at their present prices; `None` if the cloud did not say.
        error: The cloud's reason, for the user.
    """

    catalog: Catalog | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class CloudTrouble:
    """The cloud fails to carry out requests, or works again.

    Attributes:
        since_ms: When the trouble began; `None` if the cloud works again.
        reason: The cloud's message and what to do about it, for the user.
    """

    since_ms: Millis | None
    reason: str = ""


class Phase(StrEnum):
    """The phase of an attempt, as its worker sees it."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    """Over: no process of the attempt is left and none will be started."""


@quick
@dataclass(frozen=True, slots=True)
class RunReport:
    """A worker's report on one attempt.

    Attributes:
        exit_code: Exit code of the task's program, 128 + n if signal n ended it;
            `None` before the exit.
        never_started: Whether it exited without having run, because a stop overtook the start or
            the worker does not know it.
        stopped: Whether a stop was requested before it exited; then any exit counts as a stop.
        generation: The newest checkpoint generation that is safely in the object store.
        message: Why the start failed, or more about the exit, for the user.
        blameless: Whether it failed because of its instance, so that the failure does not count.
        ran_ms: For how long its program has run by a clock of the worker's that stands still while
            the machine sleeps; `None` before it runs, and from workers that do not tell.
        not_stored: Which of its outputs and checkpoints are not stored, and why; empty for none.
        image_ms: For how long its image was fetched or built before it ran; `None` without an
            image, and from workers that do not tell.
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
    blameless: bool = False
    ran_ms: int | None = None
    not_stored: str = ""
    image_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """An agent opened a session; `reports` lists every attempt that the agent knows of.

    Attributes:
        session: Number of the session, which grows; messages of older sessions are stale.
        address: Address at which other instances reach this one.
        measured_mib: Mebibytes that tasks may use, as counted by the machine's kernel; 0 if
            unknown.
        confinement: Description of how tasks are confined, for the user.
        unfit: Why no task may run there; empty if tasks may.
    """

    instance: InstanceId
    session: int
    capacity: Resources
    reports: tuple[RunReport, ...]
    address: str = ""
    measured_mib: int = 0
    confinement: str = ""
    unfit: str = ""


@quick
@dataclass(frozen=True, slots=True)
class WorkerReported:
    """A worker reports attempts that have changed."""

    instance: InstanceId
    session: int
    reports: tuple[RunReport, ...]


@dataclass(frozen=True, slots=True)
class WorkerFetched:
    """The files of a task run's next attempt are on the instance.

    Attributes:
        image_ms: See `RunReport`.
    """

    instance: InstanceId
    session: int
    run: RunId
    image_ms: int | None = None


@quick
@dataclass(frozen=True, slots=True)
class ProgressSampled:
    """Progress reports that arrived together. They are not journalled.

    Attributes:
        samples: Task run, attempt and progress. The control loop fills in `Progress.rate`.
        disturbed: Whether the time since the last reports is not to be learned from: reports that
            were due are missing, or a user was in a task of the instance.
    """

    instance: InstanceId
    session: int
    samples: tuple[tuple[RunId, int, Progress], ...]
    disturbed: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker's session has ended.

    Attributes:
        goodbye: Whether the agent signed off because its instance is shutting down.
        reason: Why it did, in words for the user; empty if it did not say.
    """

    instance: InstanceId
    session: int
    goodbye: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointsListed:
    """The stored checkpoints of a job; the answer to `ListCheckpoints`.

    Attributes:
        number: Number of the request. The answer to an older request is stale.
        generations: The complete generations of each task run, ascending.
        error: Why the object store did not answer, for the user; then nothing is known.
    """

    number: int
    job: JobId
    generations: tuple[tuple[RunId, tuple[int, ...]], ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class OutputsPlaced:
    """The outputs of an extra run are its task's; the answer to `PlaceOutputs`.

    Attributes:
        run: The extra run.
        error: Why they are not, for the user; empty if they are.
    """

    run: RunId
    error: str = ""


@dataclass(frozen=True, slots=True)
class RemovalRequested:
    """A user has removed what an ended job has stored; answered by a `Reply` to `command`.

    Attributes:
        owner: The user who gave the command.
    """

    command: str
    job: JobId
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ResultsRemoved:
    """Nothing is left of what a job has stored; the answer to `RemoveResults`.

    Attributes:
        error: Why something is; empty if nothing is.
    """

    job: JobId
    error: str = ""


@dataclass(frozen=True, slots=True)
class ResultsExpired:
    """Jobs that ended in a time, and have not been looked at; the answer to `FindExpired`.

    Attributes:
        until_ms: There are no others that ended up to then.
    """

    jobs: tuple[JobId, ...]
    until_ms: Millis


@dataclass(frozen=True, slots=True)
class PartGiven:
    """A fork has given its part of an epoch, which is in the object store.

    Attributes:
        session: Session of the worker that reported it.
        steps: How many steps it did in this epoch.
        digest: Of the list of its files.
    """

    instance: InstanceId
    session: int
    run: RunId
    attempt: int
    epoch: int
    steps: int
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PartsMerged:
    """The leader of an epoch has merged its parts, and the merge is in the object store.

    Attributes:
        session: Session of the worker that reported it.
        kept: The fate of each part; parts that are not named were left out.
        check_merged: The check metric of the merge; `None` if there is none.
        check_best: The check metric of the best part.
        digest: Name of the merge in the object store: the digest of the list of its files.
    """

    instance: InstanceId
    session: int
    run: RunId
    attempt: int
    epoch: int
    kept: tuple[PartFate, ...]
    check_merged: float | None = None
    check_best: float | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PlanReady:
    """The planner's answer to `RequestPlan`."""

    round: int
    plan: Plan
    memory: PolicyMemory | None


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The planner failed in this round; the next round uses a new process."""

    round: int
    reason: str


@dataclass(frozen=True, slots=True)
class ClosingDown:
    """The cluster ends: its tasks are stopped, its instances go, and nothing is started any more.

    Jobs stay as they are, for the next master.
    """


@dataclass(frozen=True, slots=True)
class ClocksMoved:
    """The wall clock of the master's machine was set, or the machine slept.

    Attributes:
        wall: How the wall clock stands to the loop's time from now on.
        slept_ms: For how long the machine slept; 0 if it did not.
    """

    wall: WallClock
    slept_ms: int = 0


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; nothing else happened."""


Event = (
    JobSubmitted
    | CancelRequested
    | SuspendRequested
    | ResumeRequested
    | NodeRequested
    | DrainRequested
    | MoveRequested
    | SecretChanged
    | SecretsListed
    | SecretsRefused
    | InstanceUp
    | InstanceGone
    | LaunchFailed
    | Quoted
    | InstanceInterrupted
    | CloudListed
    | CatalogListed
    | CloudTrouble
    | WorkerRegistered
    | WorkerReported
    | WorkerFetched
    | ProgressSampled
    | WorkerLost
    | CheckpointsListed
    | OutputsPlaced
    | RemovalRequested
    | ResultsRemoved
    | ResultsExpired
    | PartGiven
    | PartsMerged
    | PlanReady
    | PlanFailed
    | ClosingDown
    | ClocksMoved
    | Tick
)
