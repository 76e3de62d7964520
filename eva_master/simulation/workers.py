"""Workers and tasks that exist as figures only: progress under interference, checkpoints, exits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eva_master.model.actions import (
    FetchFiles,
    ForgetTask,
    StartTask,
    StopTask,
    SyncWorker,
    TaskOrder,
    WorkerAction,
)
from eva_master.model.events import (
    CopyReport,
    Phase,
    ProgressSampled,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.ids import CopyId, InstanceId, JobId, Workload
from eva_master.model.records import Progress
from eva_master.ports import Inbox
from eva_master.simulation.clock import Timeline
from eva_master.simulation.cloud import Hosts, Machine

Truth = Callable[[Workload, tuple[Workload, ...]], float]
"""Normalised throughput of a workload among others (sorted), as it really is; in (0, 1]."""


@dataclass(frozen=True, slots=True)
class Delays:
    """How long things take on a worker, in milliseconds."""

    fetch_ms: int = 2_000
    start_ms: int = 5_000
    stop_ms: int = 3_000
    report_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is stored of a task.

    Attributes:
        done_ms: The work that it holds.
        attempt: Which one published it.
    """

    done_ms: float
    attempt: int


@dataclass(slots=True)
class Work:
    """What a task has to do and has done, in milliseconds of running alone.

    Attributes:
        total_ms: Until it is done.
        stored: The checkpoint generations in the object store.
        publishes: Whether it ever writes a checkpoint; in most gangs rank 0 does alone.
        failures: Exit codes of the next attempts that fail, first one next.
    """

    total_ms: int
    stored: dict[int, Checkpoint] = field(default_factory=dict)
    publishes: bool = True
    failures: list[int] = field(default_factory=list)

    def give_up_after(self, generation: int) -> None:
        """Remove what was stored after a generation."""
        self.stored = {number: held for number, held in self.stored.items() if number <= generation}


@dataclass(slots=True)
class Attempt:
    """An attempt on a worker.

    Attributes:
        done_ms: Work done when `since` was; it grows at `speed` from then on.
        generation: The newest checkpoint that it began from or published.
        epoch: Counts changes of speed, so that an outdated end of work is recognised.
    """

    order: TaskOrder
    phase: Phase = Phase.STARTING
    done_ms: float = 0.0
    generation: int = 0
    since: int = 0
    speed: float = 0.0
    epoch: int = 0
    stopping: bool = False
    report: CopyReport | None = None


class SimulatedWorkers(Hosts):
    """Implements `eva_master.ports.WorkerLink`; one agent per machine that has booted.

    Args:
        timeline: The virtual time.
        inbox: Where the agents' messages go.
        delays: How long things take.
        truth: How much tasks slow each other down.
        work_of: What a task has to do, asked when its first attempt starts.
    """

    def __init__(
        self,
        timeline: Timeline,
        inbox: Inbox,
        *,
        delays: Delays,
        truth: Truth,
        work_of: Callable[[CopyId], Work],
    ) -> None:
        self._timeline = timeline
        self._inbox = inbox
        self._delays = delays
        self._truth = truth
        self._work_of = work_of
        self._agents: dict[InstanceId, Agent] = {}
        self._work: dict[CopyId, Work] = {}
        self._sessions = 0
        self.starts: list[tuple[CopyId, int, InstanceId]] = []
        """Every start that really happened."""
        self.orders: dict[tuple[CopyId, int], TaskOrder] = {}
        """What was ordered with each start."""
        self.origins: dict[tuple[CopyId, int], Checkpoint | None] = {}
        """What each attempt that was started began from."""
        self.wiped: set[InstanceId] = set()
        """Instances that have lost their disk: only there may an attempt be started again."""

    def execute(self, action: WorkerAction) -> None:
        """See `eva_master.ports.WorkerLink.execute`."""
        agent = self._agents.get(action.instance)
        if agent is not None and agent.session:
            agent.hear(action)

    def boot(self, machine: Machine) -> None:
        """A machine is up: its agent dials the master."""
        agent = Agent(self, machine)
        self._agents[machine.instance] = agent
        agent.register()

    def vanish(self, instance: InstanceId) -> None:
        """A machine is off: its tasks end where they are, unheard."""
        agent = self._agents.pop(instance, None)
        if agent is not None:
            agent.power_off()

    def cut(self, instance: InstanceId, back_after_ms: int) -> None:
        """Break an agent's session; it registers anew after a while."""
        agent = self._agents.get(instance)
        if agent is not None and agent.session:
            self._inbox.post(WorkerLost(instance, agent.session))
            agent.session = 0
            self._timeline.after(back_after_ms, agent.register)

    def wipe(self, instance: InstanceId) -> None:
        """An instance loses its disk and its tasks, and its agent starts with an empty one."""
        agent = self._agents.get(instance)
        if agent is not None:
            self.wiped.add(instance)
            agent.power_off()
            self._agents[instance] = agent.successor()
            self._agents[instance].register()

    def leave(self, instance: InstanceId) -> None:
        """An instance is to shut down: its agent stops what runs and takes its leave."""
        agent = self._agents.get(instance)
        if agent is not None:
            agent.leave()

    def agents(self) -> list[InstanceId]:
        """Machines with an agent."""
        return list(self._agents)

    def running(self) -> dict[CopyId, list[InstanceId]]:
        """Where each copy really runs: a list longer than one is a broken promise."""
        found: dict[CopyId, list[InstanceId]] = {}
        for instance, agent in self._agents.items():
            for attempt in agent.present():
                found.setdefault(attempt.order.copy, []).append(instance)
        return found

    # -- for the agents --------------------------------------------------------------------------

    def new_session(self) -> int:
        """A number larger than any before."""
        self._sessions += 1
        return self._sessions

    def work(self, copy: CopyId) -> Work:
        """What a copy has to do."""
        if copy not in self._work:
            self._work[copy] = self._work_of(copy)
        return self._work[copy]

    def publish(self, copy: CopyId) -> None:
        """Have a running task write a checkpoint and go on."""
        for agent in self._agents.values():
            for attempt in agent.present():
                if attempt.order.copy == copy and attempt.phase is Phase.RUNNING:
                    agent.publish(attempt)

    def gang_changed(self, job: JobId) -> None:
        """The speed of a job's members depends on all of them."""
        attempts = self.attempts_of(job)
        slowest = min((agent.alone_speed(attempt) for agent, attempt in attempts), default=1.0)
        for agent, attempt in attempts:
            agent.set_speed(attempt, slowest)

    def attempts_of(self, job: JobId) -> list[tuple[Agent, Attempt]]:
        """A job's running attempts, on whatever machine."""
        return [
            (agent, attempt)
            for agent in self._agents.values()
            for attempt in agent.present()
            if attempt.order.job == job and attempt.phase is Phase.RUNNING
        ]


class Agent:
    """One simulated worker; keeps the promises that a real one keeps."""

    def __init__(self, world: SimulatedWorkers, machine: Machine) -> None:
        self._world = world
        self._machine = machine
        self._timeline = world._timeline
        self._inbox = world._inbox
        self._delays = world._delays
        self._instance = machine.instance
        self._capacity = machine.offering.type.capacity
        self._attempts: dict[tuple[CopyId, int], Attempt] = {}
        self._refused: dict[tuple[CopyId, int], CopyReport] = {}
        self._seen: dict[CopyId, int] = {}
        self._on = True
        self.session = 0

    # -- session ---------------------------------------------------------------------------------

    def register(self) -> None:
        """Open a session and list everything."""
        if self._on and not self.session:
            self.session = self._world.new_session()
            self._inbox.post(
                WorkerRegistered(
                    self._instance,
                    self.session,
                    self._capacity,
                    self._reports(),
                    address=f"{self._instance}.internal",
                )
            )

    def power_off(self) -> None:
        """Everything here ends."""
        self._on = False
        if self.session:
            self._inbox.post(WorkerLost(self._instance, self.session))
        self.session = 0
        jobs = {attempt.order.job for attempt in self.present()}
        self._attempts.clear()
        for job in sorted(jobs):
            self._world.gang_changed(job)

    def leave(self) -> None:
        """Stop everything, then say goodbye."""
        for attempt in self.present():
            order = attempt.order
            self._stop(order.copy, order.attempt, order.grace_period_ms)
        self._timeline.after(self._delays.stop_ms, self._say_goodbye)

    def _say_goodbye(self) -> None:
        if self._on and self.session:
            self._inbox.post(WorkerLost(self._instance, self.session, goodbye=True))
            self.session = 0
        self._on = False

    def successor(self) -> Agent:
        """An agent on the same machine that knows nothing of this one."""
        return Agent(self._world, self._machine)

    def hear(self, action: WorkerAction) -> None:
        """Carry out a command; every one may come again, late, or out of turn."""
        match action:
            case StartTask():
                self._start(action.order)
            case StopTask():
                self._stop(action.copy, action.attempt, action.grace_ms)
            case FetchFiles():
                self._timeline.after(self._delays.fetch_ms, lambda: self._fetched(action.order))
            case ForgetTask():
                attempt = self._attempts.get((action.copy, action.attempt))
                if attempt is not None and attempt.phase is Phase.EXITED:
                    del self._attempts[action.copy, action.attempt]
                self._refused.pop((action.copy, action.attempt), None)
            case SyncWorker():
                self._inbox.post(WorkerReported(self._instance, self.session, self._reports()))

    def _reports(self) -> tuple[CopyReport, ...]:
        known = (self._report(attempt) for attempt in self._attempts.values())
        return (*known, *self._refused.values())

    def _report(self, attempt: Attempt) -> CopyReport:
        if attempt.report is not None:
            return attempt.report
        order = attempt.order
        return CopyReport(
            order.copy,
            order.attempt,
            attempt.phase,
            generation=attempt.generation,
            progress=self._progress(attempt),
        )

    def _say(self, report: CopyReport) -> None:
        if self.session:
            self._inbox.post(WorkerReported(self._instance, self.session, (report,)))

    # -- tasks -----------------------------------------------------------------------------------

    def present(self) -> list[Attempt]:
        """Attempts that are not over."""
        return [a for a in self._attempts.values() if a.phase is not Phase.EXITED]

    def _start(self, order: TaskOrder) -> None:
        key = (order.copy, order.attempt)
        if known := self._attempts.get(key):
            self._say(self._report(known))
            return
        if self._seen.get(order.copy, 0) >= order.attempt:
            self._say(_never_started(order.copy, order.attempt))
            return
        self._seen[order.copy] = order.attempt
        attempt = self._attempts[key] = Attempt(order)
        self._world.starts.append((order.copy, order.attempt, self._instance))
        self._world.orders[key] = order
        if self._restore(attempt):
            self._timeline.after(self._delays.start_ms, lambda: self._runs(attempt))

    def _restore(self, attempt: Attempt) -> bool:
        """Begin from a checkpoint; an attempt whose checkpoint is not there is over."""
        order = attempt.order
        source = self._world.work(order.checkpoint_of or order.copy).stored
        generation = max(source, default=0) if order.resume is None else order.resume
        if generation and generation not in source:
            attempt.phase = Phase.EXITED
            attempt.report = CopyReport(
                order.copy,
                order.attempt,
                Phase.EXITED,
                never_started=True,
                message=f"no generation {generation}",
            )
            self._say(attempt.report)
            return False
        origin = self._world.origins[order.copy, order.attempt] = source.get(generation)
        attempt.generation = generation
        attempt.done_ms = origin.done_ms if origin else 0.0
        return True

    def publish(self, attempt: Attempt) -> None:
        """Store a checkpoint of what is done by now."""
        work = self._world.work(attempt.order.copy)
        if work.publishes:
            attempt.generation += 1
            checkpoint = Checkpoint(self._done(attempt), attempt.order.attempt)
            work.stored[attempt.generation] = checkpoint

    def _runs(self, attempt: Attempt) -> None:
        if not self._on or attempt.phase is not Phase.STARTING or attempt.stopping:
            return
        attempt.phase = Phase.RUNNING
        attempt.since = self._timeline.now()
        self._say(self._report(attempt))
        self._company_changed(attempt)
        self._timeline.after(self._delays.report_ms, lambda: self._sample(attempt))

    def _stop(self, copy: CopyId, number: int, grace_ms: int) -> None:
        attempt = self._attempts.get((copy, number))
        if attempt is None:
            if self._seen.get(copy, 0) < number:
                self._seen[copy] = number
                self._refused[copy, number] = _never_started(copy, number)
            self._say(_never_started(copy, number))
        elif attempt.phase is Phase.EXITED:
            self._say(self._report(attempt))
        elif not attempt.stopping:
            attempt.stopping = True
            graceful = grace_ms >= self._delays.stop_ms and attempt.phase is Phase.RUNNING
            delay = self._delays.stop_ms if graceful else 0
            self._timeline.after(delay, lambda: self._stopped(attempt, graceful=graceful))

    def _stopped(self, attempt: Attempt, *, graceful: bool) -> None:
        if not self._on or attempt.phase is Phase.EXITED:
            return
        if graceful:
            self.publish(attempt)
        self._exit(attempt, 143 if graceful else -9, stopped=True)

    def _exit(self, attempt: Attempt, code: int, *, stopped: bool) -> None:
        progress = self._progress(attempt)
        attempt.phase = Phase.EXITED
        order = attempt.order
        attempt.report = CopyReport(
            order.copy,
            order.attempt,
            Phase.EXITED,
            exit_code=code,
            stopped=stopped,
            generation=attempt.generation,
            progress=progress,
        )
        self._say(attempt.report)
        self._company_changed(attempt)

    def _fetched(self, order: TaskOrder) -> None:
        if self._on and self.session:
            self._inbox.post(WorkerFetched(self._instance, self.session, order.copy))

    # -- progress --------------------------------------------------------------------------------

    def _company_changed(self, attempt: Attempt) -> None:
        jobs = {attempt.order.job, *(other.order.job for other in self.present())}
        for job in sorted(jobs):
            self._world.gang_changed(job)

    def alone_speed(self, attempt: Attempt) -> float:
        """How fast an attempt would run if only this machine mattered."""
        company = sorted(
            Workload(other.order.workload)
            for other in self.present()
            if other is not attempt and other.phase is Phase.RUNNING
        )
        return self._world._truth(Workload(attempt.order.workload), tuple(company))

    def set_speed(self, attempt: Attempt, speed: float) -> None:
        """Go on at another speed."""
        if speed == attempt.speed:
            return
        attempt.done_ms = self._done(attempt)
        attempt.since = self._timeline.now()
        attempt.speed = speed
        attempt.epoch += 1
        epoch = attempt.epoch
        work = self._world.work(attempt.order.copy)
        due = work.total_ms if not work.failures else work.total_ms / (2 + len(work.failures))
        left = max(0.0, due - attempt.done_ms) / speed
        self._timeline.after(int(left) + 1, lambda: self._finish(attempt, epoch))

    def _done(self, attempt: Attempt) -> float:
        if attempt.phase is not Phase.RUNNING:
            return attempt.done_ms
        return attempt.done_ms + (self._timeline.now() - attempt.since) * attempt.speed

    def _finish(self, attempt: Attempt, epoch: int) -> None:
        if not self._on or attempt.phase is not Phase.RUNNING or attempt.epoch != epoch:
            return
        failures = self._world.work(attempt.order.copy).failures
        self._exit(attempt, failures.pop(0) if failures else 0, stopped=False)

    def _progress(self, attempt: Attempt) -> Progress:
        total = self._world.work(attempt.order.copy).total_ms
        return Progress(steps=int(self._done(attempt)) // 1000, total_steps=total // 1000)

    def _sample(self, attempt: Attempt) -> None:
        if not self._on or attempt.phase is not Phase.RUNNING:
            return
        if self.session:
            order = attempt.order
            sample = (order.copy, order.attempt, self._progress(attempt))
            self._inbox.post(ProgressSampled(self._instance, self.session, (sample,)))
        self._timeline.after(self._delays.report_ms, lambda: self._sample(attempt))


def _never_started(copy: CopyId, attempt: int) -> CopyReport:
    """What is said of an attempt that a worker does not have and never will."""
    return CopyReport(copy, attempt, Phase.EXITED, never_started=True, stopped=True)
