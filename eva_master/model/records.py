"""The journalled records of jobs, task runs and instances."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.catalog import Offering, Purchase, quoted_at
from eva_master.model.forks.merging import Merging
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.suspension import Suspension
from eva_master.model.progress import NO_PROGRESS, Progress
from eva_master.model.resources import Resources
from eva_master.model.values import quick, replace
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId, Millis, Price, RunId, replica_of, run_id
from eva_wire.values.states import (
    COPY_STATES,
    INSTANCE_STATES,
    JOB_STATES,
    LIVE,
    TERMINAL_JOB,
    History,
    InstanceState,
    JobState,
    MarketRule,
    RunState,
    moved,
    spent_ms,
)


class Outcome(StrEnum):
    """The outcome of a job that is ending."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StopReason(StrEnum):
    """The reason why a running attempt is being stopped."""

    MOVE = "move"
    SUSPEND = "suspend"
    GANG = "gang"
    """Another member of its gang stopped, so this one restarts too."""
    END = "end"
    REPLICA = "replica"
    """Another run of its task has succeeded, or a plan has retired this one."""
    LOST = "lost"
    """Its worker no longer lists it; the stop confirms that it is gone."""
    MERGE = "merge"
    """Another fork merges in its place, so it must not train on from a merge of its own."""
    SECRET = "secret"  # noqa: S105
    """A secret could not be handed over, so that it never began."""
    LATE = "late"
    """Start overdue: the attempt took too long to begin running, which is a failure."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Contents of a task run's newest checkpoint, as of when the master received word of it.

    Attributes:
        steps: Iterations done by then.
        work_ms: Standalone time of running by then.
    """

    steps: int
    work_ms: int


@quick
@dataclass(frozen=True, slots=True)
class PastAttempt:
    """An attempt of a task run that is over.

    Attributes:
        number: Of the attempt.
        started_ms: When it was sent to its instance; 0 if that is not on record.
        ended_ms: When the master heard of its end.
        why: How it ended, for the user.
    """

    number: int
    started_ms: int
    ended_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Failure:
    """An exit of a task that was not requested.

    Attributes:
        exit_code: Exit code of its program; `None` if it never ran.
        reason: Description of the failure, for the user.
        blameless: Whether its instance was to blame, not the task.
        repeated: Whether the program had failed alike before, soon after its start, and would
            certainly fail again.
    """

    exit_code: int | None
    reason: str
    blameless: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Meeting:
    """The address where the members of a gang's present attempt meet.

    Attributes:
        address: Address of the instance of the member of rank 0.
        port: A port that no other live gang uses on any instance, nor the previous attempt.
    """

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended, for those that depend on it.

    Attributes:
        job: The job.
        outcome: Its final outcome.
        origin: The job that failed or was cancelled by itself; a different job if this one ended
            because a dependency did not succeed.
    """

    job: JobId
    outcome: Outcome
    origin: JobId

    @classmethod
    def of(cls, job: Job) -> Ended:
        """How a job that is over ended."""
        return cls.known(job.id, job.state, job.unmet)

    @classmethod
    def known(cls, job: JobId, state: JobState, unmet: Ended | None) -> Ended:
        """How a job ended, by the parts of its record that determine it."""
        return cls(job, Outcome(state.value), job if unmet is None else unmet.origin)

    @property
    def words(self) -> str:
        """The reason for which a job that depends on it ends, for the user."""
        failed = self.outcome is Outcome.FAILED
        text = f"{self.job}, after which it was to run, {'failed' if failed else 'was cancelled'}"
        if self.origin != self.job:
            text += f" because {self.origin} {'did' if failed else 'was'}"
        return text


@dataclass(frozen=True, slots=True)
class Sizing:
    """How many members of an elastic gang run.

    Attributes:
        members: The first so many; the others rest.
        reason: Why, for the user.
    """

    members: int
    reason: str = ""


@quick
@dataclass(frozen=True, slots=True)
class Job:
    """The master's record of a job."""

    id: JobId
    spec: JobSpec
    submitted_ms: Millis
    history: History
    command: str = ""
    """Id of the submission; a repeated submission is answered with the same job."""
    started_ms: Millis | None = None
    finished_ms: Millis | None = None
    outcome: Outcome | None = None
    reason: str = ""
    exit_code: int | None = None
    attempt: int = 0
    """Number of attempts of a gang started so far. Tasks of an array number theirs each."""
    failures: int = 0
    """Failures that were counted; of an array, those of all its tasks."""
    not_before_ms: Millis = Millis(0)
    """Time before which no attempt of a gang starts, since retries back off."""
    meeting: Meeting | None = None
    """Meeting point of the attempt started last; `None` unless it is a gang of several."""
    resume: int | None = None
    """Checkpoint generation that the next attempt resumes from, while later ones are removed."""
    failure: Failure | None = None
    """The first failure in a gang's present attempt, until the attempt is over."""
    first_failure: Failure | None = None
    """How the first task of an array failed for good; `None` if none has."""
    released_ms: Millis | None = None
    """When the last of the jobs that it depends on had succeeded; `None` before, or without any."""
    unmet: Ended | None = None
    """The job that it depends on and that did not succeed, if it ended for that."""
    stop_within_ms: int | None = None
    """Time that its tasks have at most to stop since it was cancelled so; `None` for their own."""
    suspension: Suspension | None = None
    """Why no plan is about it, if a user has suspended it."""
    rested_ms: int = 0
    """For how long, since it started, it was suspended before; that is no part of its duration."""
    resting_ms: Millis | None = None
    """Since when it has been suspended with no task running; `None` if it is not."""
    held_ms: int = 0
    """The sum of the waits before it is, or was, tried again after failures. The wait of a task of
    an array counts in proportion: that of the last one that is not over counts whole."""
    spoiled_ms: int = 0
    """How long attempts of it took that failed, from start to end."""
    sizing: Sizing | None = None
    """How many members of an elastic gang run, or are to; `None` before that was decided."""
    moved_to: str | None = None
    """The partition that it was moved to last; `None` if it never was."""
    merging: Merging | None = None
    """How far its forks are; `None` before the first of them ran, and if it has none."""
    buys: MarketRule = MarketRule.ANY
    """Offerings that may be bought for it at present, by its deadline or its wait for spot."""
    buys_ms: Millis | None = None
    """Since when `buys` has that value; `None` if it never changed."""
    buys_until_ms: Millis | None = None
    """Until when it waits for spot instances at most; `None` if it does not."""
    missing_secrets: tuple[str, ...] = ()
    """Secrets that it uses and that are not set; no attempt starts meanwhile."""

    cap: int | None = None
    """Micro-dollars that it may cost, as its owner said last; `None` for what its file says."""
    cap_told: bool = False
    """Whether most of `max_cost` was spent, of which its owner was told."""

    @property
    def max_cost(self) -> int | None:
        """Micro-dollars that it may cost; `None` for any."""
        return self.spec.max_cost if self.cap is None else self.cap

    @property
    def members(self) -> int:
        """How many of its tasks run or are to: of an elastic gang the first ones, else all."""
        least = self.spec.elastic.least
        if least is None:
            return len(self.spec.tasks)
        return least if self.sizing is None else self.sizing.members

    @property
    def forked(self) -> bool:
        """Whether several copies of it may train at once: not any more once it is unforked."""
        unforked = self.merging is not None and self.merging.unforked
        return self.spec.forked and not unforked

    @property
    def partition(self) -> str:
        """The partition that it runs in; empty for the default one."""
        return self.spec.partition if self.moved_to is None else self.moved_to

    @property
    def waits(self) -> bool:
        """Whether it waits, or waited until its end, for jobs that it depends on."""
        return self.released_ms is None and bool(self.spec.stage.depends_on)

    @property
    def arrived_ms(self) -> Millis:
        """When policies could see it first: at its submission, or when it no longer waited."""
        return self.submitted_ms if self.released_ms is None else self.released_ms

    def ran_ms(self, now: Millis) -> int:
        """For how long it has run by now: since it started, less the time that it rested."""
        if self.started_ms is None:
            return 0
        return max(
            0,
            (now if self.resting_ms is None else self.resting_ms)
            - self.started_ms
            - self.rested_ms,
        )

    @property
    def state(self) -> JobState:
        """The current state, the last of the history."""
        return JOB_STATES[self.history[-1][0]]

    @property
    def since_ms(self) -> Millis:
        """When it entered its current state."""
        return Millis(self.history[-1][1])

    def waited_ms(self, now: Millis) -> int:
        """For how long it has waited by now: none of its tasks had started, or all were stopped."""
        return spent_ms(self.history, JobState.PENDING, now)

    @property
    def is_gang(self) -> bool:
        """Whether all tasks of the job run or none does."""
        return self.spec.kind is JobKind.GANG

    def to(self, state: JobState, at: Millis) -> Job:
        """The job after a transition to `state`; raises `IllegalTransition`."""
        return replace(self, history=moved(f"job {self.id}", self.history, state, at))


@quick
@dataclass(frozen=True, slots=True)
class TaskRun:
    """The master's record of one task run.

    Attributes:
        attempt: The attempt that runs or ran last, 0 before the first. An attempt is started once,
            on one instance.
        instance: Where the attempt occupies room; `None` while waiting or terminal.
        target: Where the task run should be; differs from `instance` while it moves. `None` while
            it waits for a plan, and while it is being suspended.
        fetched: The instance on which its files are ready; `None` if there is none.
        generation: The newest checkpoint generation that is safely stored, 0 for none.
        resume: The generation that the attempt resumed from, 0 for none; `None` if its worker took
            the newest one that it found.
        checkpoint_of: The task run that stored the generation `resume`, `None` for this one.
        stored: Contents of the newest generation; `None` if unknown.
        work_ms: Standalone time for which it ran up to its last stop, since the last attempt that
            began without a checkpoint. Work that no checkpoint holds does not count once the
            attempt is over.
        took_ms: Standalone time of all of its running, without interference; 0 until it has
            succeeded, and where that is not measured.
        lost: The last attempt that ended with its instance, 0 if none ever did.
        moves: Times that it was stopped in order to run elsewhere.
        places: The last attempts, and the instance that each was started on.
        past: The last attempts that are over, oldest first.
        pool: The pool in which a line gave it its place; empty if a plan did, or if it has none.
        gpu_ms: GPU time up to its last stop, summed over GPUs; work lost with an instance counts
            too.
        replicas: Number of extra runs that its task was ever given; 0 on the record of an extra
            run.
        outputs_of: Number of the extra run that has succeeded and has its outputs in the task's
            place; 0 for the task's own outputs, and on the record of an extra run.
        why: For an extra run, why the task was given it; once it is over without success, why it
            ended.
        batch_ppm: The attempt's part of each batch of its gang, in millionths; 0 if its members do
            not divide batches by their speeds.
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
    progress: Progress = NO_PROGRESS
    work_ms: int = 0
    exit_code: int | None = None
    waiting_for: str = ""
    """Why it is not placed, for the user. Of one that was never placed it is not journalled: the
    first plan after a restart says it again."""
    places: tuple[tuple[int, InstanceId], ...] = ()
    took_ms: int = 0
    failures: int = 0
    """How often a task of an array failed; those of a gang are counted by its job."""
    not_before_ms: Millis = Millis(0)
    """Time before which no attempt of a task of an array starts, since retries back off."""
    reason: str = ""
    """How the last attempt of a task of an array failed, for the user."""
    suspension: Suspension | None = None
    """Why it was stopped, from its suspension by a plan until its next start."""
    pool: str = ""
    gpu_ms: int = 0
    replicas: int = 0
    outputs_of: int = 0
    why: str = ""
    batch_ppm: int = 0
    stored: Stored | None = None
    past: tuple[PastAttempt, ...] = ()
    not_stored: str = ""
    """Which outputs and checkpoints of its last attempt are not stored, and why, for the user."""

    @property
    def replica(self) -> int:
        """Its number among the extra runs of its task, from 1; 0 for the task's own run."""
        return replica_of(self.id)

    @property
    def extra(self) -> bool:
        """Whether it is an extra run of its task."""
        return "+" in self.id

    @property
    def attempt_started_ms(self) -> int:
        """When the newest attempt was sent to its instance; 0 if that is not on record."""
        starts = (at for state, at in reversed(self.history) if state == RunState.STARTING)
        return next(starts, 0)

    @property
    def in_hand(self) -> bool:
        """Whether it has an instance or a target."""
        return self.instance is not None or self.target is not None

    @property
    def state(self) -> RunState:
        """The current state, the last of the history."""
        return COPY_STATES[self.history[-1][0]]

    @property
    def since_ms(self) -> Millis:
        """When it entered its current state."""
        return Millis(self.history[-1][1])

    @property
    def waiting_since_ms(self) -> Millis | None:
        """Since when it has been waiting for a place; `None` if it has one, or is over."""
        waits = self.state is RunState.WAITING and self.target is None
        return self.since_ms if waits else None

    def ran_ms(self, now: Millis) -> int:
        """For how long it has run by now, in the attempts that are on record."""
        return spent_ms(self.history, RunState.RUNNING, now)

    def entering(self, state: RunState, at: Millis) -> History:
        """The history after a transition to `state`; raises `IllegalTransition`."""
        return moved(f"task run {self.id}", self.history, state, at)

    def to(self, state: RunState, at: Millis) -> TaskRun:
        """The task run after a transition to `state`; raises `IllegalTransition`."""
        return replace(self, history=self.entering(state, at))


def rests(job: Job, run: TaskRun) -> str:
    """Why a member of an elastic gang rests, for the user; empty if it does not."""
    least = job.spec.elastic.least
    if least is None or run.state is not RunState.WAITING or run.index < job.members:
        return ""
    why = "" if job.sizing is None else job.sizing.reason
    size = f"rests: its gang has {job.members} of {least} to {len(job.spec.tasks)} members"
    return f"{size}; {why}" if why else size


def untouched_state(job: Job) -> RunState:
    """The state of the tasks of a job to which nothing has happened: it waits, or ended with it."""
    if job.outcome is None:
        return RunState.WAITING
    failed = job.outcome is Outcome.FAILED and job.is_gang
    return RunState.FAILED if failed else RunState.CANCELLED


def untouched(job: Job, index: int, why: str = "") -> TaskRun:
    """The task run of a task to which nothing has happened, derived from its job alone.

    No record of such a task is kept anywhere.

    Args:
        job: The job of the task.
        index: The task's number in the job, from 0.
        why: Why it waits, if it does.
    """
    history: History = ((RunState.WAITING.value, int(job.submitted_ms)),)
    if job.outcome is not None:
        ended = job.history[-2 if job.state in TERMINAL_JOB else -1][1]
        history = (*history, (untouched_state(job).value, ended))
        why = ""
    return TaskRun(run_id(job.id, index), job.id, index, history, waiting_for=why)


@dataclass(frozen=True, slots=True)
class Drain:
    """Why and how an instance is given up: it takes no new task and goes once it is empty.

    An owned node stays, without tasks.

    Attributes:
        reason: For the user.
        moves: Whether its tasks move elsewhere if there is room; else they finish where they are.
        ordered: Whether an operator has said so, so that no plan may take it back.
        lacks: Of an owned node that has less than is stated what it has; nobody can lift that.
    """

    reason: str
    moves: bool = False
    ordered: bool = False
    lacks: str = ""


@quick
@dataclass(frozen=True, slots=True)
class Instance:
    """The master's record of an instance, launched or about to be.

    Attributes:
        offering: The offering at its present price, since a spot price changes.
        at_risk: Whether the cloud recommends to leave it, since it may soon be taken away.
        paid: Its earlier prices, each with the time until which it applied, in order.
        fence_ms: For an owned node, the time after the last message of a master by which its tasks
            have stopped; the longest that its agent was given. 0 for launched instances.
        up_ms: When the cloud began to bill it, as the cloud recorded.
        ready_ms: When its worker first registered.
        gone_ms: When the cloud stopped billing it, as the cloud recorded.
        reason: Why it was launched or terminated, for the user.
        address: Address at which other instances reach it, as its worker last reported.
        leaving_ms: When the cloud will take it away; `None` if it has not said so.
        pool: The pool that it stands in, or stood in before it was drained; empty if there is none.
        drain: Why it takes no new task; `None` if it does.
        partition: The partition that it was launched for; empty for the default one.
        on_demand: For a spot instance, the on-demand price of its type at launch; `None` if
            unknown.
        confinement: Description of how its tasks are confined, for the user, as its worker last
            said.
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
    fence_ms: int = 0
    pool: str = ""
    drain: Drain | None = None
    partition: str = ""
    on_demand: Price | None = None
    confinement: str = ""

    @property
    def state(self) -> InstanceState:
        """The current state, the last of the history."""
        return INSTANCE_STATES[self.history[-1][0]]

    @property
    def since_ms(self) -> Millis:
        """When it entered its current state."""
        return Millis(self.history[-1][1])

    @property
    def takes_tasks(self) -> bool:
        """Whether nobody has decided or recommended that it be left."""
        return not self.at_risk and self.drain is None

    @property
    def stands(self) -> bool:
        """Whether it stays though it is empty."""
        lives = self.leaving_ms is None and self.state in LIVE
        return bool(self.pool) and self.takes_tasks and lives

    def to(self, state: InstanceState, at: Millis) -> Instance:
        """The instance after a transition to `state`; raises `IllegalTransition`."""
        return replace(self, history=moved(f"instance {self.id}", self.history, state, at))

    @property
    def owned(self) -> bool:
        """Whether it is a machine of the operator's own."""
        return self.offering.purchase is Purchase.OWNED

    def at_price(self, machine_price: Price, now: Millis) -> Instance:
        """The instance with a new price from a given time on, beside what is attached to it."""
        if machine_price == self.offering.machine_price:
            return self
        until = (*self.paid, (now, self.offering.price))
        return replace(self, offering=quoted_at(self.offering, machine_price), paid=until)

    def demand_of(self, task: TaskSpec) -> Resources | None:
        """The demand of `task` on this instance; `None` if it cannot run on its family."""
        return task.demand_on(self.offering.type.family)
