"""Simulated workers and tasks: progress under interference, checkpoints and exits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eva_lab.simulator.cluster.agent import SimulatedAgent
from eva_lab.simulator.cluster.attempt_log import AttemptLog
from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.cloud import Hosts, SimulatedInstance
from eva_lab.simulator.cluster.delays import Durations
from eva_lab.simulator.cluster.progress_model import ProgressModel
from eva_lab.simulator.cluster.report_schedule import Periodic, Reports
from eva_lab.simulator.cluster.truth import SizeSpeed, Truth
from eva_lab.simulator.cluster.work import SimulatedAttempt, Work
from eva_master.model.actions import WorkerAction
from eva_master.model.events import Phase, WorkerLost
from eva_master.ports import Inbox
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, RunId


class SimulatedWorkers(Hosts):
    """Implements `eva_master.ports.WorkerLink` with one agent per booted machine.

    Args:
        timeline: The virtual time.
        inbox: Where the agents' messages go.
        delays: How long actions on workers take.
        truth: How much tasks slow each other down.
        work_of: The work of a task, asked for when its first attempt starts.
        speed_of: How fast a task really runs on a family; by default as fast on all.
        size_speed: How fast gangs really are by their number of members and by whether these are on
            several instances; by default as fast with any.
        attempt_log: Is told what happens to attempts.
        reports: When progress is reported; every minute by default.
        merge_ms: How long a merge takes, from its last part on.
    """

    def __init__(
        self,
        timeline: Timeline,
        inbox: Inbox,
        *,
        delays: Durations,
        truth: Truth,
        work_of: Callable[[RunId], Work],
        speed_of: Callable[[RunId, Family], float] | None = None,
        size_speed: SizeSpeed | None = None,
        attempt_log: AttemptLog,
        reports: Reports | None = None,
        merge_ms: int = 0,
    ) -> None:
        self.timeline = timeline
        self.inbox = inbox
        self.delays = delays
        self.merge_ms = merge_ms
        self.reports: Reports = reports or Periodic(timeline, 60_000)
        self.progress_model = ProgressModel(
            timeline,
            truth,
            finish=self._finish,
            changed=self._changed,
            size_speed=size_speed,
        )
        self._work_of = work_of
        self.speed_of = speed_of or (lambda _run, _family: 1.0)
        self._agents: dict[InstanceId, SimulatedAgent] = {}
        self._notices: dict[InstanceId, int] = {}
        self._work: dict[RunId, Work] = {}
        self._sessions = 0
        self.attempt_log = attempt_log
        self.told: Callable[[SimulatedAttempt, float], float] = lambda _attempt, done_ms: done_ms
        """Maps the true work of an attempt to the work that it reports."""
        self.wiped: set[InstanceId] = set()
        """Instances that have lost their disk: only there may an attempt be started twice."""

    def execute(self, action: WorkerAction) -> None:
        """See `eva_master.ports.WorkerLink.execute`."""
        agent = self._agents.get(action.instance)
        if agent is not None and agent.session:
            agent.hear(action)

    def boot(self, machine: SimulatedInstance) -> None:
        """Start the agent of a booted machine, which connects to the master."""
        agent = SimulatedAgent(self, machine)
        self._agents[machine.instance] = agent
        agent.register()
        if (at_ms := self._notices.pop(machine.instance, None)) is not None:
            self.interrupt(machine.instance, at_ms)

    def vanish(self, instance: InstanceId) -> None:
        """End a machine's tasks without a report, since it is switched off."""
        agent = self._agents.pop(instance, None)
        self._notices.pop(instance, None)
        if agent is not None:
            agent.power_off()
        self.delays.lost(instance)

    def cut(self, instance: InstanceId, back_after_ms: int) -> None:
        """Break an agent's session; it registers again after a while."""
        agent = self._agents.get(instance)
        if agent is not None and agent.session:
            self.inbox.post(WorkerLost(instance, agent.session))
            agent.lose_session()
            self.timeline.after(back_after_ms, agent.register)

    def outage(self, instance: InstanceId, back_after_ms: int) -> None:
        """Switch a machine off without a word; it starts again after a while, disk and all."""
        agent = self._agents.get(instance)
        if agent is not None:
            agent.power_off()
            self.delays.lost(instance)
            self._agents[instance] = successor = agent.successor(remembers=True)
            self.timeline.after(back_after_ms, successor.register)

    def wipe(self, instance: InstanceId) -> None:
        """Lose an instance's disk and tasks; a new agent starts with an empty disk."""
        agent = self._agents.get(instance)
        if agent is not None:
            self.wiped.add(instance)
            agent.power_off()
            self.delays.lost(instance)
            self._agents[instance] = agent.successor()
            self._agents[instance].register()

    def leave(self, instance: InstanceId) -> None:
        """Shut an instance down: its agent stops all tasks and signs off."""
        agent = self._agents.get(instance)
        if agent is not None:
            agent.leave()

    def interrupt(self, instance: InstanceId, at_ms: int) -> None:
        """Notify an agent that its instance will be taken away, as soon as it runs."""
        agent = self._agents.get(instance)
        if agent is None:
            self._notices[instance] = at_ms
        else:
            agent.interrupt(Millis(at_ms), "the cloud takes its spot capacity back")

    def agents(self) -> list[InstanceId]:
        """The instances whose agent runs."""
        return list(self._agents)

    def running(self) -> dict[RunId, list[InstanceId]]:
        """The instances where each task run really runs; more than one would be a fault."""
        instances: dict[RunId, list[InstanceId]] = {}
        for instance, agent in self._agents.items():
            for attempt in agent.present():
                instances.setdefault(attempt.order.run, []).append(instance)
        return instances

    def publish(self, run: RunId) -> None:
        """Have a running task write a checkpoint and go on."""
        for agent, attempt in self._attempts():
            if attempt.order.run == run:
                agent.publish(attempt)

    def attempts_of(self, job: JobId) -> list[tuple[SimulatedAgent, SimulatedAttempt]]:
        """A job's attempts whose program runs, on all machines."""
        return [(agent, attempt) for agent, attempt in self._attempts() if attempt.order.job == job]

    def _attempts(self) -> list[tuple[SimulatedAgent, SimulatedAttempt]]:
        return [
            (agent, attempt)
            for agent in self._agents.values()
            for attempt in agent.present()
            if attempt.phase is Phase.RUNNING
        ]

    # -- for the agents --------------------------------------------------------------------------

    def new_session(self) -> int:
        """A session number that is larger than any before."""
        self._sessions += 1
        return self._sessions

    def work(self, run: RunId) -> Work:
        """Remaining work and stored checkpoints of a task run."""
        if run not in self._work:
            self._work[run] = self._work_of(run)
        return self._work[run]

    def done(self, run: RunId) -> None:
        """Forget what a task run had to do that has done it and never runs again."""
        self._work.pop(run, None)

    # -- for the motion --------------------------------------------------------------------------

    def _finish(self, attempt: SimulatedAttempt) -> None:
        if (agent := self._agents.get(attempt.instance)) is not None:
            agent.finish(attempt)

    def _changed(self, instance: InstanceId, attempts: Sequence[SimulatedAttempt]) -> None:
        if (agent := self._agents.get(instance)) is not None:
            self.reports.changed(agent, attempts)
