"""One simulated worker: how it carries out commands and what it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from eva_lab.simulator.cluster.attempt_log import AttemptLog
from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.cloud import SimulatedInstance
from eva_lab.simulator.cluster.delays import Durations
from eva_lab.simulator.cluster.forked import Forks
from eva_lab.simulator.cluster.progress_model import ProgressModel
from eva_lab.simulator.cluster.report_schedule import Reports
from eva_lab.simulator.cluster.work import Checkpoint, ForkProgram, SimulatedAttempt, Work
from eva_master.model.actions import (
    FetchFiles,
    ForgetTask,
    StartTask,
    StopTask,
    SyncWorker,
    TaskOrder,
    TellMerge,
    WorkerAction,
)
from eva_master.model.events import (
    Event,
    InstanceInterrupted,
    Phase,
    ProgressSampled,
    RunReport,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.ports import Inbox
from eva_wire.values.ids import Family, Millis, RunId


class Surroundings(Protocol):
    """State that the simulated workers of a cluster share.

    Attributes:
        timeline: The virtual time.
        inbox: Where the master's events go.
        delays: How long workers take for what they do.
        reports: Decides when progress is reported.
        progress_model: Advances the attempts that run.
        attempt_log: Is told what happens to attempts.
        told: Maps an attempt's real progress to the reported one.
        speed_of: How fast a task run really runs on a family.
        merge_ms: How long it takes to merge the parts of forks.
    """

    timeline: Timeline
    inbox: Inbox
    delays: Durations
    reports: Reports
    progress_model: ProgressModel
    attempt_log: AttemptLog
    told: Callable[[SimulatedAttempt, float], float]
    speed_of: Callable[[RunId, Family], float]
    merge_ms: int

    def new_session(self) -> int:
        """A session number that is larger than any before."""
        ...

    def work(self, run: RunId) -> Work:
        """Remaining work and stored checkpoints of a task run."""
        ...

    def done(self, run: RunId) -> None:
        """Forget what a task run had to do that has done it and never runs again."""
        ...


class SimulatedAgent:
    """One simulated worker, which behaves towards its master as a real one does.

    Args:
        surroundings: State shared with the other workers.
        machine: Where it runs.
    """

    def __init__(self, surroundings: Surroundings, machine: SimulatedInstance) -> None:
        self._surroundings = surroundings
        self._machine = machine
        self._timeline = surroundings.timeline
        self._inbox = surroundings.inbox
        self._delays = surroundings.delays
        self._instance = machine.instance
        self._capacity = machine.offering.type.capacity
        self._attempts: dict[tuple[RunId, int], SimulatedAttempt] = {}
        self._refused: dict[tuple[RunId, int], RunReport] = {}
        self._seen: dict[RunId, int] = {}
        self._on = True
        self._losses = 0
        self._notice: tuple[Millis, str] | None = None
        self.session = 0
        self._forks = Forks(
            self._timeline,
            surroundings.progress_model,
            lambda: surroundings.merge_ms,
            post=self._post,
            leave=self._leave_off,
        )

    # -- session ---------------------------------------------------------------------------------

    def register(self) -> None:
        """Open a session and report all attempts."""
        if self._on and not self.session:
            self.session = self._surroundings.new_session()
            self._inbox.post(
                WorkerRegistered(
                    self._instance,
                    self.session,
                    self._capacity,
                    self._reports(),
                    address=f"{self._instance}.internal",
                )
            )
            self._report_notice()

    def lose_session(self) -> None:
        """End the session; an owned node stops its tasks if there is no new one in time.

        The lease is taken for as long as it can be: granted last at this very moment.
        """
        self.session = 0
        self._losses += 1
        if self._machine.fence_ms:
            losses = self._losses
            self._timeline.after(self._machine.fence_ms, lambda: self._fence(losses))

    def _fence(self, losses: int) -> None:
        """Stop all attempts unless there was a session since the lease began to run out."""
        if not self._on or self.session or losses != self._losses:
            return
        for attempt in self.present():
            self._surroundings.progress_model.halt(attempt)
            self._keep_saved(attempt)
            self.exit(attempt, 137, stopped=True)

    def power_off(self) -> None:
        """End all attempts, since the machine is switched off."""
        self._on = False
        if self.session:
            self._inbox.post(WorkerLost(self._instance, self.session))
        self.session = 0
        attempts, now = self.present(), self._timeline.now()
        self._attempts.clear()
        for attempt in attempts:
            for lost in (attempt, *self._surroundings.progress_model.lose(attempt)):
                self._keep_saved(lost)
            self._surroundings.attempt_log.over(attempt, now)

    def _keep_saved(self, attempt: SimulatedAttempt) -> None:
        """Publish the last checkpoint that the program wrote by itself."""
        saved = attempt.saved(self._timeline.now())
        if saved > 0:
            self._publish(attempt, saved)

    def interrupt(self, at_ms: Millis, reason: str) -> None:
        """Report that the cloud will take the machine away."""
        self._notice = at_ms, reason
        self._report_notice()

    def _report_notice(self) -> None:
        """In each session anew, as whoever reads it of the machine does."""
        if self.session and self._notice is not None:
            self._inbox.post(InstanceInterrupted(self._instance, self.session, *self._notice))

    def leave(self) -> None:
        """Stop all attempts, then sign off from the master."""
        longest = 0
        for attempt in self.present():
            order = attempt.order
            longest = max(longest, self._delays.stop(order))
            self._stop(order.run, order.attempt, order.grace_period_ms)
        self._timeline.after(longest, self._say_goodbye)

    def _say_goodbye(self) -> None:
        if self._on and self.session:
            self._inbox.post(WorkerLost(self._instance, self.session, goodbye=True))
            self.session = 0
        self._on = False

    def successor(self, *, remembers: bool = False) -> SimulatedAgent:
        """A new agent on the same machine that knows nothing of this one's attempts.

        Args:
            remembers: Whether it knows which attempts were there.
        """
        agent = SimulatedAgent(self._surroundings, self._machine)
        if remembers:
            agent._seen = dict(self._seen)
        agent._notice = self._notice
        return agent

    def hear(self, action: WorkerAction) -> None:
        """Carry out a command. Commands may be repeated, late or out of order."""
        match action:
            case StartTask():
                self._start(action.order)
            case StopTask():
                self._stop(action.run, action.attempt, action.grace_ms)
            case FetchFiles():
                delay = self._delays.fetch(action.order, self._instance, self._timeline.now())
                image_ms = self._delays.image(action.order, self._instance)
                self._timeline.after(delay, lambda: self._fetched(action.order, image_ms))
            case ForgetTask():
                self._forget(action.run, action.attempt)
            case TellMerge():
                if (attempt := self._attempts.get((action.run, action.attempt))) is not None:
                    self._forks.hear(attempt, action.round)
            case SyncWorker():
                self._inbox.post(WorkerReported(self._instance, self.session, self._reports()))

    def _forget(self, run: RunId, number: int) -> None:
        """Forget an exit that is written down; a gang's member may have to run again."""
        self._refused.pop((run, number), None)
        attempt = self._attempts.get((run, number))
        if attempt is None or attempt.phase is not Phase.EXITED:
            return
        del self._attempts[run, number]
        report = attempt.report
        if attempt.order.gang is None and report is not None and report.exit_code == 0:
            self._surroundings.done(run)

    def _reports(self) -> tuple[RunReport, ...]:
        reports = (self._report(attempt) for attempt in self._attempts.values())
        return (*reports, *self._refused.values())

    def _report(self, attempt: SimulatedAttempt) -> RunReport:
        if attempt.report is not None:
            return attempt.report
        return RunReport(
            attempt.order.run,
            attempt.order.attempt,
            attempt.phase,
            generation=attempt.generation,
            progress=attempt.work.progress(attempt.done(self._timeline.now())),
            image_ms=attempt.image_ms,
        )

    def _say(self, report: RunReport) -> None:
        if self.session:
            self._inbox.post(WorkerReported(self._instance, self.session, (report,)))

    # -- tasks -----------------------------------------------------------------------------------

    def present(self) -> list[SimulatedAttempt]:
        """The attempts that have not exited."""
        return [a for a in self._attempts.values() if a.phase is not Phase.EXITED]

    def _start(self, order: TaskOrder) -> None:
        key = (order.run, order.attempt)
        if earlier := self._attempts.get(key):
            self._say(self._report(earlier))
            return
        if self._seen.get(order.run, 0) >= order.attempt:
            self._say(_never_started(order.run, order.attempt))
            return
        self._seen[order.run] = order.attempt
        now = self._timeline.now()
        speed = self._surroundings.speed_of(order.run, self._machine.offering.type.family)
        work = self._surroundings.work(order.run)
        attempt = SimulatedAttempt(order, self._instance, work, now, family_speed=speed)
        if order.fork is not None:
            attempt.fork = ForkProgram(gives=work.gives_parts)
            attempt.paused = work.gives_parts
        self._attempts[key] = attempt
        self._surroundings.attempt_log.ordered(attempt)
        if self._restore(attempt):
            delay = self._delays.start(order, self._instance, now)
            attempt.image_ms = self._delays.image(order, self._instance)
            self._timeline.after(delay, lambda: self._runs(attempt))

    def _restore(self, attempt: SimulatedAttempt) -> bool:
        """Resume from a checkpoint; an attempt whose checkpoint is missing ends at once."""
        order = attempt.order
        source = self._surroundings.work(order.checkpoint_of or order.run).stored
        generation = max(source, default=0) if order.resume is None else order.resume
        if generation and generation not in source:
            attempt.phase = Phase.EXITED
            attempt.report = RunReport(
                order.run,
                order.attempt,
                Phase.EXITED,
                never_started=True,
                message=f"no generation {generation}",
            )
            self._say(attempt.report)
            return False
        origin = source.get(generation)
        self._surroundings.attempt_log.began_from(attempt, origin)
        attempt.generation = generation
        attempt.done_ms = attempt.seen_ms = attempt.told_ms = origin.done_ms if origin else 0.0
        return True

    def publish(self, attempt: SimulatedAttempt) -> None:
        """Store a checkpoint of the work done by now."""
        self._publish(attempt, attempt.done(self._timeline.now()))

    @staticmethod
    def _publish(attempt: SimulatedAttempt, done_ms: float) -> None:
        if attempt.work.publishes:
            attempt.generation += 1
            held = Checkpoint(done_ms, attempt.order.attempt)
            attempt.work.stored[attempt.generation] = held

    def _runs(self, attempt: SimulatedAttempt) -> None:
        if not self._on or attempt.phase is not Phase.STARTING or attempt.stopping:
            return
        attempt.phase = Phase.RUNNING
        attempt.at_ms = self._timeline.now()
        self._say(self._report(attempt))
        self._surroundings.progress_model.begin(attempt, self._delays.init(attempt.order))
        if attempt.work.tells_steps:
            self._surroundings.reports.began(self, attempt)

    def _stop(self, run: RunId, number: int, grace_ms: int) -> None:
        attempt = self._attempts.get((run, number))
        if attempt is None:
            if self._seen.get(run, 0) < number:
                self._seen[run] = number
                self._refused[run, number] = _never_started(run, number)
            self._say(_never_started(run, number))
        elif attempt.phase is Phase.EXITED:
            self._say(self._report(attempt))
        elif not attempt.stopping:
            attempt.stopping = True
            needed = self._delays.stop(attempt.order)
            graceful = grace_ms >= needed and attempt.phase is Phase.RUNNING
            self._surroundings.progress_model.halt(attempt)
            delay = needed if graceful else 0
            self._timeline.after(delay, lambda: self._stopped(attempt, graceful=graceful))

    def _stopped(self, attempt: SimulatedAttempt, *, graceful: bool) -> None:
        if not self._on or attempt.phase is Phase.EXITED:
            return
        if graceful:
            self._forks.give_last(attempt)
            self.publish(attempt)
        self.exit(attempt, 143 if graceful else 137, stopped=True)

    def finish(self, attempt: SimulatedAttempt) -> None:
        """Exit an attempt whose program has finished or reached its next failure."""
        if self._on and attempt.phase is Phase.RUNNING:
            failures, until, now = attempt.work.failures, attempt.until_ms, self._timeline.now()
            if until is not None and attempt.done(now) >= until - 1:
                self._forks.share_done(attempt)
                return
            self.exit(attempt, failures.pop(0) if failures else 0, stopped=False)

    def _leave_off(self, attempt: SimulatedAttempt) -> None:
        """End a program that has been told that there is nothing left to do."""
        if self._on and attempt.phase is Phase.RUNNING and not attempt.stopping:
            self.exit(attempt, 0, stopped=False)

    def _post(self, event: Callable[[int], Event]) -> None:
        if self._on and self.session:
            self._inbox.post(event(self.session))

    def exit(self, attempt: SimulatedAttempt, code: int, *, stopped: bool = False) -> None:
        """End an attempt's program and report the exit."""
        progress = attempt.work.progress(attempt.done(self._timeline.now()))
        attempt.phase = Phase.EXITED
        order = attempt.order
        attempt.report = RunReport(
            order.run,
            order.attempt,
            Phase.EXITED,
            exit_code=code,
            stopped=stopped,
            generation=attempt.generation,
            progress=progress,
        )
        self._say(attempt.report)
        self._surroundings.progress_model.end(attempt)
        self._surroundings.attempt_log.over(attempt, self._timeline.now())

    def _fetched(self, order: TaskOrder, image_ms: int | None) -> None:
        if self._on and self.session:
            self._inbox.post(WorkerFetched(self._instance, self.session, order.run, image_ms))

    def sample(self, attempts: Sequence[SimulatedAttempt]) -> bool:
        """Report the progress of those that run; returns whether any runs."""
        running = [attempt for attempt in attempts if attempt.phase is Phase.RUNNING]
        if not self._on or not running:
            return False
        if self.session:
            now, shown = self._timeline.now(), self._surroundings.told
            samples = tuple(
                (
                    attempt.order.run,
                    attempt.order.attempt,
                    attempt.work.progress(shown(attempt, attempt.done(now))),
                )
                for attempt in running
            )
            self._inbox.post(ProgressSampled(self._instance, self.session, samples))
        return True


def _never_started(run: RunId, attempt: int) -> RunReport:
    """The report on an attempt that a worker does not have and will never start."""
    return RunReport(run, attempt, Phase.EXITED, never_started=True, stopped=True)
