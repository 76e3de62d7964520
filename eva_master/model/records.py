"""What the master keeps of each job, task run and instance: the journalled state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from eva_master.model.catalog import Offering
from eva_master.model.ids import InstanceId, JobId, Millis, Price, RunId
from eva_master.model.job import JobKind, JobSpec, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.states import (
    COPY_STATES,
    INSTANCE_STATES,
    JOB_STATES,
    History,
    InstanceState,
    JobState,
    RunState,
    moved,
)
from eva_master.model.values import replace


class Outcome(StrEnum):
    """How a job that is ending will have ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StopReason(StrEnum):
    """Why a running attempt is being stopped."""

    MOVE = "move"
    SUSPEND = "suspend"
    GANG = "gang"
    """Another member of its gang stopped, so this one starts over with it."""
    END = "end"
    LOST = "lost"
    """Its worker no longer lists it; the stop makes sure of it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a task last said of itself.

    Attributes:
        steps: Iterations done, over all attempts as far as checkpoints kept them.
        total_steps: What `steps` will be at the end, as the program knows it; 0 if unknown.
        metrics: The program's own figures (loss, accuracy), by name.
        rate: Iterations per second over the last window, 0 before the first is complete.
        at_ms: When the master heard of it, `None` if that is not on record.
    """

    steps: int = 0
    total_steps: int = 0
    metrics: tuple[tuple[str, float], ...] = ()
    rate: float = 0.0
    at_ms: Millis | None = field(default=None, compare=False)

    def at_rate(self, rate: float) -> Progress:
        """The same at another rate."""
        if rate == self.rate:
            return self
        return Progress(self.steps, self.total_steps, self.metrics, rate, self.at_ms)

    def heard(self, at: Millis) -> Progress:
        """The same, heard of at a certain time."""
        return Progress(self.steps, self.total_steps, self.metrics, self.rate, at)


@dataclass(frozen=True, slots=True)
class Failure:
    """An exit of a task that nobody asked for.

    Attributes:
        exit_code: Of its program, `None` if that never ran.
        reason: In words for the user.
    """

    exit_code: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the members of a gang's present attempt meet.

    Attributes:
        address: Of the instance of the member of rank 0.
        port: No other live gang's on any instance, nor that of the attempt before.
    """

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the master knows it."""

    id: JobId
    spec: JobSpec
    submitted_ms: Millis
    history: History
    command: str = ""
    """Id of the submission, so that a repeated one is answered with the same job."""
    started_ms: Millis | None = None
    finished_ms: Millis | None = None
    outcome: Outcome | None = None
    reason: str = ""
    exit_code: int | None = None
    attempt: int = 0
    """Attempts started so far; numbers them uniquely within the job."""
    failures: int = 0
    not_before_ms: Millis = Millis(0)
    """No attempt before this time: retries back off."""
    meeting: Meeting | None = None
    """Of the attempt started last; `None` for anything but a gang of several."""
    resume: int | None = None
    """The checkpoint generation that the next attempt will begin from, once that is decided and
    later ones have to go; else `None`."""
    failure: Failure | None = None
    """The first one in a gang's present attempt, until all of the attempt is over."""

    @property
    def state(self) -> JobState:
        """The current state."""
        return JOB_STATES[self.history[-1][0]]

    @property
    def is_gang(self) -> bool:
        """Whether all tasks of the job run or none does."""
        return self.spec.kind is JobKind.GANG

    def to(self, state: JobState, at: Millis) -> Job:
        """The job after a move to `state`; raises `IllegalTransition`."""
        return replace(self, history=moved(f"job {self.id}", self.history, state, at))


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task run of one task of a job.

    Attributes:
        attempt: The attempt that runs or ran last, 0 before the first. An attempt is started
            on one instance, once.
        instance: Where the attempt takes room; `None` while waiting or settled.
        target: Where the task run should be; differs from `instance` while it moves. `None` while
            it waits for a plan, and while it holds room only to be suspended.
        fetched: The instance that has its files ready, `None` if none has.
        generation: The newest checkpoint generation that is safely stored, 0 for none.
        resume: The generation that the attempt began from, 0 for none; `None` if its worker took
            the newest one that it found.
        checkpoint_of: Whose generation that is, `None` for the task run's own.
        work_ms: Standalone time for which it ran up to the last time that it stopped running, from
            the checkpoint-less start of the attempt that all later ones go on from.
        lost: The attempt that ended with its instance last, 0 if none ever did.
        moves: Times it was stopped in order to run elsewhere.
        places: The last attempts, and the instance that each was started on.
    """

    id: RunId
    job: JobId
    index: int
    history: History
    attempt: int = 0
    instance: InstanceId | None = None
    target: InstanceId | None = None
    fetched: InstanceId | None = None
    stop: StopReason | None = None
    generation: int = 0
    resume: int | None = None
    checkpoint_of: RunId | None = None
    lost: int = 0
    started_ms: Millis | None = None
    moves: int = 0
    progress: Progress = field(default_factory=Progress)
    work_ms: int = 0
    exit_code: int | None = None
    waiting_for: str = ""
    """Why it has no place, in words for the user."""
    places: tuple[tuple[int, InstanceId], ...] = ()

    @property
    def state(self) -> RunState:
        """The current state."""
        return COPY_STATES[self.history[-1][0]]

    def to(self, state: RunState, at: Millis) -> TaskRun:
        """The task run after a move to `state`; raises `IllegalTransition`."""
        return replace(self, history=moved(f"task run {self.id}", self.history, state, at))


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine that was bought, or is about to be.

    Attributes:
        offering: What was bought, at its present price: that of a spot instance changes.
        at_risk: Whether the cloud recommends to leave it, as one that it may soon take away.
        paid: Its earlier prices, each with the time until which it was paid, in order.
        up_ms: When the cloud began to bill it; the cloud's own record.
        ready_ms: When its worker first registered.
        gone_ms: When the cloud stopped billing it; the cloud's own record.
        reason: Why it was launched or is going, in words for the user.
        address: Under which other instances reach it, as its worker said last.
        leaving_ms: When the cloud takes it away, as it has said; `None` if it has not.
    """

    id: InstanceId
    offering: Offering
    history: History
    requested_ms: Millis
    up_ms: Millis | None = None
    ready_ms: Millis | None = None
    gone_ms: Millis | None = None
    reason: str = ""
    address: str = ""
    leaving_ms: Millis | None = None
    at_risk: bool = False
    paid: tuple[tuple[Millis, Price], ...] = ()

    @property
    def state(self) -> InstanceState:
        """The current state."""
        return INSTANCE_STATES[self.history[-1][0]]

    def to(self, state: InstanceState, at: Millis) -> Instance:
        """The instance after a move to `state`; raises `IllegalTransition`."""
        return replace(self, history=moved(f"instance {self.id}", self.history, state, at))

    def at_price(self, price: Price, now: Millis) -> Instance:
        """The instance when its price changes."""
        if price == self.offering.price:
            return self
        until = (*self.paid, (now, self.offering.price))
        return replace(self, offering=replace(self.offering, price=price), paid=until)

    def demand_of(self, task: TaskSpec) -> Resources | None:
        """What `task` takes of this instance, `None` if it cannot run on its family."""
        return task.demand_on(self.offering.type.family)
