"""A whole cluster on virtual time: the production loop between simulated adapters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from eva_lab.simulator.cluster.attempt_log import AttemptLog, History
from eva_lab.simulator.cluster.checkpoints import SimulatedCheckpoints
from eva_lab.simulator.cluster.clock import Timeline, VirtualInbox
from eva_lab.simulator.cluster.cloud import SimulatedCloud
from eva_lab.simulator.cluster.cloud import SimulatedInstance as CloudMachine
from eva_lab.simulator.cluster.delays import Durations, EqualDelays
from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_lab.simulator.cluster.report_schedule import Periodic, Reports
from eva_lab.simulator.cluster.truth import UNDISTURBED, SizeSpeed, Truth, stated_size_speed
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.cluster.workers import SimulatedWorkers
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Reply, RequestPlan
from eva_master.model.catalog import Catalog
from eva_master.model.changes import Changes
from eva_master.model.events import JobSubmitted, PlanReady
from eva_master.model.fleet.nodes import offerings
from eva_master.model.job import JobSpec
from eva_master.packing.claims.asking import ask
from eva_master.packing.reconfiguration.greedy_pass import GreedyPass
from eva_master.ports import Inbox, Journal, Policy
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import Family, JobId, Millis, RunId

_SAME_ROUND_MS = 1_000


class SimulatedPlanner:
    """A planner that runs the policy in the same thread.

    Args:
        timeline: The virtual time.
        inbox: Where its answers are posted.
        policy: The policy, or those of all partitions by their names.
        latency_ms: Time from a request to its answer.
        recorded: When some rounds were requested and answered in a recording; see `answered_ms`.
        greedy: Rounds of it of which the plan was that of the greedy pass alone.
    """

    def __init__(
        self,
        timeline: Timeline,
        inbox: Inbox,
        policy: Policy | Mapping[str, Policy],
        latency_ms: int = 100,
        recorded: Mapping[int, tuple[int, int]] | None = None,
        *,
        greedy: Collection[int] = (),
    ) -> None:
        self._timeline = timeline
        self._inbox = inbox
        self._policy = policy
        self._latency_ms = latency_ms
        self._recorded = recorded or {}
        self._greedy = frozenset(greedy)

    def request(self, request: RequestPlan) -> None:
        """See `eva_master.ports.Planner.request`."""
        asked = self._policy
        policy = asked[request.partition] if isinstance(asked, Mapping) else asked
        if request.round in self._greedy:
            policy = GreedyPass()
        plan, memory = ask(policy, request.snapshot, request.memory)
        ready = PlanReady(request.round, plan, memory)
        now = self._timeline.now()
        recorded = self._recorded.get(request.round, (now, now + self._latency_ms))
        at = answered_ms(now, *recorded)
        self._timeline.after(at - now, lambda: self._inbox.post(ready))


def answered_ms(now: int, asked_ms: int, ended_ms: int) -> int:
    """When a round that is requested now is answered, by the recorded round of its number.

    A round that is requested when the recorded one was is answered when that was. At any other
    time it is another round, which takes as long.
    """
    same = abs(now - asked_ms) <= _SAME_ROUND_MS and ended_ms >= now
    return ended_ms if same else now + ended_ms - asked_ms


class Answers:
    """Implements `eva_master.ports.Replies`: keeps all replies.

    Attributes:
        replies: The latest reply to each command.
        refused: The commands that were refused, in order.
    """

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {}
        self.refused: list[Reply] = []

    def reply(self, reply: Reply) -> None:
        """Keep a reply by its command."""
        self.replies[reply.command] = reply
        if reply.error is not None:
            self.refused.append(reply)

    def publish(self, changes: Changes, model: Callable[[], ReadModel]) -> None:
        """Do nothing, since there are no readers or watchers."""


class SimulatedCluster:
    """A simulated cluster under the production control loop.

    Args:
        catalog: Offerings of the cloud.
        policy: The scheduler under test; if the cluster is divided, that of each partition, or one
            for all.
        settings: The control loop's settings; their owned nodes are there from the beginning.
        delays: The workers' delays.
        truth: True interference, which the scheduler does not see.
        work_of: The work of each task; by default its job's stated duration.
        speed_of: How fast each task really runs on a family; by default as fast on all.
        size_speed: How fast gangs really are by their number of members and by whether these are on
            several instances; by default as their users state, or else as is usual.
        terminate_ms: Time from the request to the end of a machine.
        terminate_grid_ms: Machines end at multiples of it; 0 for at any time.
        reports: When tasks report progress; by default at the interval of `delays`.
        attempt_log: Is told what happens to attempts.
        latency_ms: How long the planner and the object store take to answer.
        recorded_rounds: When some rounds were requested and answered in a recording; it overrides
            the latency of their plans.
        greedy_rounds: Rounds whose plan was that of the greedy pass alone.
        journal: The journal; by default one in memory, from which the master can restart.
        start: When the simulation begins, in milliseconds since the epoch.
        merge_ms: How long a merge takes, from its last part on.
    """

    def __init__(
        self,
        catalog: Catalog,
        policy: Policy | Mapping[str, Policy],
        *,
        settings: Settings | None = None,
        delays: Durations | None = None,
        truth: Truth = UNDISTURBED,
        work_of: Callable[[RunId], Work] | None = None,
        speed_of: Callable[[RunId, Family], float] | None = None,
        size_speed: SizeSpeed | None = None,
        terminate_ms: int = 1_000,
        terminate_grid_ms: int = 0,
        reports: Callable[[Timeline], Reports] | None = None,
        attempt_log: AttemptLog | None = None,
        latency_ms: int = 100,
        recorded_rounds: Mapping[int, tuple[int, int]] | None = None,
        greedy_rounds: Collection[int] = (),
        journal: Journal | None = None,
        start: Millis = Millis(0),
        merge_ms: int = 0,
    ) -> None:
        self.timeline = Timeline(start)
        self.inbox = self._make_inbox()
        self.history = History()
        """All attempts, unless another attempt log is given."""
        delays = delays or EqualDelays()
        reports = reports or partial(Periodic, every_ms=delays.report_ms)
        self.workers = SimulatedWorkers(
            self.timeline,
            self.inbox,
            delays=delays,
            truth=truth,
            work_of=work_of or self._stated_work,
            speed_of=speed_of,
            size_speed=size_speed or self._size_speed,
            attempt_log=attempt_log or self.history,
            reports=reports(self.timeline),
            merge_ms=merge_ms,
        )
        self.cloud = SimulatedCloud(
            self.timeline,
            self.inbox,
            self.workers,
            terminate_ms=terminate_ms,
            terminate_grid_ms=terminate_grid_ms,
        )
        self.checkpoints = SimulatedCheckpoints(self.timeline, self.inbox, self.workers, latency_ms)
        self.journal = MemoryJournal() if journal is None else journal
        self.answers = Answers()
        self._settings, self._commands = settings or Settings(), 0
        self._catalog = (*catalog, *offerings(self._settings.nodes.values()))
        self._planner = SimulatedPlanner(
            self.timeline, self.inbox, policy, latency_ms, recorded_rounds, greedy=greedy_rounds
        )
        self._boot()
        self.loop.start()
        for node in self._settings.nodes.values():
            machine = CloudMachine(node.name, node.offering, start, fence_ms=node.fence_ms)
            self.workers.boot(machine)

    def _make_inbox(self) -> VirtualInbox:
        return VirtualInbox(self.timeline)

    def _boot(self) -> None:
        since = Millis(self.timeline.now() - self._settings.history_kept_ms)
        written = self.journal.load(since)
        self.machine = Machine(State.restored(self._catalog, written), self._settings)
        self.state = self.machine.state
        self.loop = self._make_loop(self.machine)

    def _make_loop(self, machine: Machine) -> Loop:
        return Loop(
            machine,
            clock=self.timeline,
            inbox=self.inbox,
            journal=self.journal,
            cloud=self.cloud,
            workers=self.workers,
            planner=self._planner,
            checkpoints=self.checkpoints,
            replies=self.answers,
        )

    def restart(self) -> None:
        """Restart the master, which then knows only what the journal has.

        Its sessions end, and the agents connect again.
        """
        self.inbox.clear()
        self._boot()
        for instance in self.workers.agents():
            self.workers.cut(instance, back_after_ms=1_000)
        self.inbox.clear()
        self.loop.start()

    @property
    def idle(self) -> bool:
        """Whether no further event or action is pending."""
        return self.inbox.idle and self.machine.next_alarm() is None

    def submit(self, spec: JobSpec, at: Millis | None = None) -> str:
        """Submit a job now or at a later time; returns the id of the command."""
        self._commands += 1
        command = f"submit-{self._commands}"
        event = JobSubmitted(command, spec)
        if at is None:
            self.inbox.post(event)
        else:
            self.timeline.after(at - self.timeline.now(), lambda: self.inbox.post(event))
        return command

    def run(self, until: Callable[[], bool], *, limit_ms: int = 30 * 86_400_000) -> bool:
        """Step until a condition holds.

        Args:
            until: The condition.
            limit_ms: Virtual time after which to give up.

        Returns:
            Whether the condition came to hold.
        """
        end = self.timeline.now() + limit_ms
        while not until():
            if self.timeline.now() > end:
                return False
            self.loop.step()
        return True

    def quiet(self) -> bool:
        """Whether all submitted jobs have arrived and ended, and nothing is left in the cloud.

        Owned nodes stay.
        """
        state = self.state
        arrived = all(f"submit-{n}" in self.answers.replies for n in range(1, self._commands + 1))
        launched = any(not state.instances[name].owned for name in state.live)
        return arrived and not (state.active or launched or self.cloud.existing())

    def _size_speed(self, job: JobId, members: int, apart: bool) -> float:
        return stated_size_speed(self.state.jobs[job].spec, members, apart=apart)

    def _stated_work(self, run: RunId) -> Work:
        spec = self.state.jobs[self.state.runs[run].job].spec
        return Work(total_ms=spec.duration_ms or 3_600_000)
