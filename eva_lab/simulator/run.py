"""Runs a trace under a policy, from the first arrival until the cloud is empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from eva_lab.simulator.cluster.attempt_log import RunMetrics
from eva_lab.simulator.cluster.clock import VirtualInbox
from eva_lab.simulator.cluster.cloud import SimulatedInstance
from eva_lab.simulator.cluster.delays import Accounting
from eva_lab.simulator.cluster.report_schedule import ReportSchedule
from eva_lab.simulator.cluster.supply.fault_injector import FaultInjector, Faults
from eva_lab.simulator.cluster.supply.spot_market import SimulatedSpotMarket
from eva_lab.simulator.cluster.truth import UNDISTURBED, Truth
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.results.metrics import (
    Counts,
    Planning,
    RunRecord,
    SimulationOutcome,
    by_partition,
    by_tenant,
    charge,
    instance_figures,
    job_figures,
    outcome,
    usd,
)
from eva_lab.simulator.results.stall import stalled
from eva_lab.simulator.scenario.earlier import taught
from eva_lab.simulator.scenario.journal_replay import Past
from eva_lab.simulator.scenario.script import PastScript, Task, TraceScript, work_of
from eva_lab.simulator.scenario.submission import work_ms
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.features.deadlines.refusing import refusal
from eva_master.control.features.tenants.views import tenant_views
from eva_master.control.measure.partition_sums import of_partitions
from eva_master.control.settings import NEVER_MS, Settings
from eva_master.model.actions import Reply
from eva_master.model.catalog import Catalog
from eva_master.model.changes import Changes, Round
from eva_master.model.events import ClosingDown, Event, JobSubmitted
from eva_master.model.fleet.market import Market
from eva_master.model.fleet.nodes import OwnedNode, offerings
from eva_master.model.fleet.partitions import WHOLE, Partitions
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.planning.suspension import Preemption
from eva_master.model.records import Job
from eva_master.model.tenants.quotas import NO_TENANCY, Tenancy
from eva_master.model.tenants.tenancy import TenantBenefit
from eva_master.model.trace import Trace, TraceJob, misplaced
from eva_master.ports import Planned, Policy
from eva_wire.values.errors import InvalidTrace, SimulationStalled
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis, RunId

_PATIENCE = 20
"""A simulation is stuck when no job or task has ended for so many times the longest of them."""
_ROUNDS_OF_PATIENCE = 3
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Setup:
    """The setup of a simulation.

    Attributes:
        trace: The jobs that arrive. Run times that its past jobs teach are known from the start.
        catalog: Offerings of the cloud, with the delays of each type.
        policy: The scheduler under test.
        truth: True interference; the scheduler learns of it only from reports.
        accounting: When files and images are fetched for a move.
        round_gap_s: Plans are made at multiples of it; `None` for whenever something happens.
        round_gap_ms: Least time between two plans, where plans are made at any time.
        round_period_ms: There is a plan at least so often, also when nothing happens; by default
            never, and where the cluster is divided as often as in production.
        durations: Whether jobs state how long they take alone.
        estimates: Source of run times where jobs do not state them.
        faults: The faults to inject.
        market: Capacity and prices of spot instances over time; `None` for any number at the prices
            of the catalog.
        seed: Seed of the faults.
        past: The recorded past of a live cluster to replay. The trace is then `Past.trace`; delays
            are as recorded, whatever the accounting.
        settings: The control loop's settings, by default those of production without repetitions of
            messages. The timing of rounds is not taken from it.
        preemption: Rule on suspending running jobs of lower priority.
        spot_choice: See `SpotChoice`.
        pool_share_ppm: See `control.settings.Settings`; `price_limit_ppm` and
            `patience` likewise.
        latency_ms: How long the planner and the object store take to answer.
        nodes: Owned nodes, which are there from the beginning to the end.
        partitions: How the cluster is divided; when its parts plan is theirs to say.
        policies: The schedulers of partitions that have one of their own, by name.
        tenancy: Limits of tenants.
        keep_record: Whether every round, occupancy, job and bill is kept.
        stopwatch: Returns real seconds, to time the policy; `None` not to time it.
        date_of: Returns the date at a virtual time, empty where times are no dates.
    """

    trace: Trace
    catalog: Catalog
    policy: Policy
    truth: Truth = UNDISTURBED
    accounting: Accounting = Accounting.COMPAT
    round_gap_s: int | None = None
    round_gap_ms: int = 1_000
    round_period_ms: int | None = None
    durations: bool = True
    estimates: Estimates = Estimates.POSTERIOR
    faults: Faults = field(default_factory=Faults)
    market: Market | None = None
    seed: int = 0
    past: Past | None = None
    settings: Settings | None = None
    preemption: Preemption = Preemption.NEVER
    patience: Mapping[str, int] = field(default_factory=dict)
    spot_choice: SpotChoice = SpotChoice.LEARNED
    pool_share_ppm: int = MILLION
    price_limit_ppm: int | None = 4 * MILLION
    latency_ms: int = 0
    nodes: tuple[OwnedNode, ...] = ()
    partitions: Partitions = WHOLE
    policies: Mapping[str, Policy] = field(default_factory=dict)
    tenancy: Tenancy = NO_TENANCY
    keep_record: bool = False
    stopwatch: Callable[[], float] = field(default=lambda: 0.0, repr=False)
    date_of: Callable[[Millis], str] = field(default=lambda _now: "", repr=False)

    @property
    def offered(self) -> Catalog:
        """Room for tasks: the cloud's offerings, and the nodes."""
        return (*self.catalog, *offerings(self.nodes))


def simulate(setup: Setup) -> SimulationOutcome:
    """Simulate a trace to its end.

    Raises:
        InvalidTrace: The trace is empty or names two jobs alike, no instance type can hold one of
            its tasks, or a job is refused when it is submitted.
        SimulationStalled: The policy never places some jobs.
    """
    return Simulation(setup).run()


class TimedPolicy:
    """Wraps a policy and times its decisions."""

    def __init__(
        self, policy: Policy, stopwatch: Callable[[], float], seconds: list[float]
    ) -> None:
        self._policy = policy
        self._stopwatch = stopwatch
        self.name = policy.name
        self._seconds = seconds

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """See `eva_master.ports.Policy.plan`."""
        start = self._stopwatch()
        decided = self._policy.plan(snapshot, memory)
        self._seconds.append(self._stopwatch() - start)
        return decided


class Rounds:
    """A journal that keeps only rounds, since this simulated master never restarts.

    Attributes:
        kept: The rounds; `None` if they are not kept.
        count: Number of rounds.
        changed: Number of rounds that launched or moved anything.
        full: Number of these that did a full reconfiguration.
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self.kept: list[Round] = []
        self.count = 0
        self.changed = 0
        self.full = 0

    def load(self, since: Millis | None = None) -> Changes:  # noqa: ARG002
        """Return an empty history: every simulation starts afresh."""
        return Changes()

    def commit(self, changes: Changes) -> None:
        """See `eva_master.ports.Journal.commit`."""
        for record in changes.rounds:
            self.count += 1
            if record.launches or record.moves:
                self.changed += 1
                self.full += record.figures.get("kind") == "full"
            if self._keep:
                self.kept.append(record)


class CountingInbox(VirtualInbox):
    """An inbox that counts its events."""

    events = 0

    def post(self, event: Event) -> None:
        """See `eva_master.ports.Inbox.post`."""
        self.events += 1
        super().post(event)


class TraceCluster(SimulatedCluster):
    """A simulated cluster whose inbox counts events."""

    inbox: CountingInbox

    def _make_inbox(self) -> CountingInbox:
        return CountingInbox(self.timeline)


class Simulation:
    """One run of a trace."""

    def __init__(self, setup: Setup) -> None:
        _check(setup)
        self._setup = setup
        self._script = script = _script(setup)
        self._arrivals = script.arrivals()
        self._total = len(setup.trace.jobs if setup.past is None else setup.past.jobs)
        self._seconds: list[float] = []
        self._rounds = Rounds(keep=setup.keep_record)
        self._run_metrics = RunMetrics(occupancies=[] if setup.keep_record else None)
        settings = _settings(setup)
        self.cluster = TraceCluster(
            setup.catalog,
            _timed(setup, self._seconds),
            settings=settings,
            terminate_grid_ms=_terminate_grid_ms(setup),
            delays=script.delays(self._task_of),
            truth=setup.truth,
            work_of=self._work_of,
            speed_of=self._speed_of,
            size_speed=self._size_speed,
            reports=partial(ReportSchedule, window_ms=settings.window_ms),
            attempt_log=self._run_metrics,
            latency_ms=setup.latency_ms,
            recorded_rounds=None if setup.past is None else setup.past.rounds_ms,
            greedy_rounds=() if setup.past is None else setup.past.greedy_rounds,
            journal=self._rounds,
            start=script.start_ms,
        )
        if setup.estimates is not Estimates.OFF:
            state = self.cluster.state
            past, start = setup.trace.past, script.start_ms
            state.set_learned(taught(state.learned, past, start, setup.estimates))
        if isinstance(script, PastScript):
            self.cluster.cloud.life_of = script.life_of
        FaultInjector(
            setup.faults,
            setup.seed,
            timeline=self.cluster.timeline,
            cloud=self.cluster.cloud,
            workers=self.cluster.workers,
        )
        self.market: SimulatedSpotMarket | None = None
        if setup.market is not None:
            self.market = SimulatedSpotMarket(
                setup.market,
                setup.catalog,
                timeline=self.cluster.timeline,
                cloud=self.cluster.cloud,
                workers=self.cluster.workers,
                inbox=self.cluster.inbox,
            )
        self._steps = 0
        self._closed_down = False
        self._ended, self._seen_ms = (0, 0), int(script.start_ms)
        """How many jobs, and tasks of arrays, had ended by then, and since when no more have."""
        longest = max(map(_longest_ms, setup.trace.jobs))
        self._patience_ms = max(
            _DAY_MS, _PATIENCE * longest, _ROUNDS_OF_PATIENCE * _longest_grid_ms(settings)
        )
        self._arrive()

    def run(self) -> SimulationOutcome:
        """Run the simulation to its end; see `simulate`."""
        while self.step():
            pass
        return self.outcome()

    def step(self) -> bool:
        """Let the loop take one turn; returns whether the run continues.

        Raises:
            SimulationStalled: Nothing has started or ended for so long that nothing ever will.
            InvalidTrace: A job is refused when it is submitted.
        """
        cluster, state = self.cluster, self.cluster.state
        if self.finished == self._total:
            if not self._launched() and not cluster.cloud.existing():
                return False
            self._close_down()
        if cluster.idle:
            raise self._stalled()
        cluster.loop.step()
        self._steps += 1
        if cluster.answers.refused:
            raise self._refused(cluster.answers.refused[0])
        now, ended = cluster.timeline.now(), (self.finished, self._run_metrics.completed)
        if ended != self._ended or not state.active:
            self._ended, self._seen_ms = ended, now
        elif now - self._seen_ms > self._patience_ms:
            raise self._stalled()
        return True

    def infeasible(self) -> frozenset[str]:
        """Jobs whose deadlines cannot be kept on demand, as far as is known before any has come.

        They would be refused when they are submitted.
        """
        state, settings = self.cluster.state, _settings(self._setup)
        return frozenset(
            self._script.title(command)
            for at, command, spec in self._script.arrivals()
            if refusal(state, spec, Millis(at), settings) is not None
        )

    def _close_down(self) -> None:
        """After the last arrival, release instances that would stand in pools for ever."""
        state = self.cluster.state
        standing = (state.instances[name] for name in state.membership.standing)
        if not self._closed_down and any(not instance.owned for instance in standing):
            self._closed_down = True
            self.cluster.inbox.post(ClosingDown())

    def _launched(self) -> bool:
        """Whether any instance is there that does not stay."""
        state = self.cluster.state
        return any(not state.instances[name].owned for name in state.live)

    def _machines(self) -> dict[InstanceId, SimulatedInstance]:
        """All machines that were billed, and the nodes for all of the time."""
        now, start = self.cluster.timeline.now(), self._script.start_ms
        nodes = {
            node.name: SimulatedInstance(node.name, node.offering, start, gone_ms=now)
            for node in self._setup.nodes
        }
        return {**nodes, **self.cluster.cloud.bill()}

    @property
    def standings(self) -> Mapping[str, TenantBenefit]:
        """The standing of each tenant with a quota so far, by name."""
        views = tenant_views(self.cluster.state, self._setup.tenancy, self._setup.offered)
        return {view.name: view.standing for view in views}

    @property
    def now_ms(self) -> int:
        """The virtual time since the beginning, in milliseconds."""
        return self.cluster.timeline.now() - self._script.start_ms

    @property
    def finished(self) -> int:
        """The number of jobs that have ended."""
        state = self.cluster.state
        return state.counters.jobs - len(state.active)

    @property
    def alive(self) -> int:
        """Jobs that have arrived and not ended."""
        return len(self.cluster.state.active)

    @property
    def events(self) -> int:
        """Number of events that the control loop has received."""
        return self.cluster.inbox.events

    @property
    def planned_s(self) -> float:
        """Seconds of the setup's stopwatch that the policy has taken so far."""
        return sum(self._seconds)

    @property
    def cost_usd(self) -> float:
        """The cost of all machines up to now."""
        now = self.cluster.timeline.now()
        return usd(sum(charge(machine, now) for machine in self._machines().values()))

    # -- what arrives ----------------------------------------------------------------------------

    def _arrive(self) -> None:
        """Schedule the arrival of the next job."""
        upcoming = next(self._arrivals, None)
        if upcoming is None:
            return
        at, command, spec = upcoming
        timeline = self.cluster.timeline

        def arrive() -> None:
            self.cluster.inbox.post(JobSubmitted(command, spec))
            self._arrive()

        timeline.after(at - timeline.now(), arrive)

    def _task_of(self, run: RunId) -> Task:
        state, task_run = self.cluster.state, self.cluster.state.runs[run]
        return state.jobs[task_run.job].command, task_run.index

    def _work_of(self, run: RunId) -> Work:
        state = self.cluster.state
        spec = state.jobs[state.runs[run].job].spec
        saves_ms = spec.restarts.checkpoint_interval_ms or self._setup.faults.checkpoint_ms
        forked = spec.forked
        return work_of(self._script, self._task_of(run), saves_ms, forked=forked)

    def _speed_of(self, run: RunId, family: Family) -> float:
        return self._script.speed(self._task_of(run), family)

    def _size_speed(self, job: JobId, members: int, apart: bool) -> float:
        command = self.cluster.state.jobs[job].command
        return self._script.size_speed(command, members, apart=apart)

    # -- what may go wrong -----------------------------------------------------------------------

    def _stalled(self) -> SimulationStalled:
        return stalled(
            self.cluster.state,
            self._script.title,
            total=self._total,
            elapsed_ms=self.now_ms,
            date=self._setup.date_of(self.cluster.timeline.now()),
        )

    def _refused(self, reply: Reply) -> InvalidTrace:
        return InvalidTrace(
            f"job {self._script.title(reply.command)} is refused when it is submitted: "
            f"{reply.error}",
            hint=reply.error.hint if reply.error else "",
        )

    # -- what it came to -------------------------------------------------------------------------

    def _alone_ms(self, job: Job) -> float:
        tasks = range(1 if job.is_gang else len(job.spec.tasks))
        return sum(self._script.alone_ms((job.command, index)) for index in tasks)

    def outcome(self) -> SimulationOutcome:
        """The metrics of a run that is over."""
        cluster, state, run_metrics = self.cluster, self.cluster.state, self._run_metrics
        machines = self._machines()
        jobs = [
            job_figures(
                job,
                run_metrics,
                self._alone_ms(job),
                sum(run.moves for run in state.members(job.id)),
            )
            for job in state.jobs.values()
        ]
        counts = Counts(
            launched=cluster.cloud.launches,
            rounds=self._rounds.count,
            reconfigurations=self._rounds.changed,
            full=self._rounds.full,
            events=cluster.inbox.events,
            steps=self._steps,
            end_ms=max((machine.gone_ms or 0 for machine in machines.values()), default=0)
            - self._script.start_ms,
        )
        record = RunRecord()
        if self._setup.keep_record:
            record = RunRecord(
                tuple(self._rounds.kept),
                tuple(run_metrics.occupancies or ()),
                tuple(jobs),
                tuple(
                    instance_figures(machine, state.instances[name].requested_ms)
                    for name, machine in machines.items()
                ),
            )
        planning = Planning.of(self._seconds)
        result = outcome(jobs, run_metrics, machines, counts, planning=planning, record=record)
        of_tenants = by_tenant(jobs, state.totals.tenants, self._setup.tenancy.quotas)
        result = replace(result, tenants=of_tenants)
        partitions = self._setup.partitions
        if not partitions.divided:
            return result
        now = cluster.timeline.now()
        sums = of_partitions(state, state.totals.partitions, partitions, now)
        costs = {name: total.charged for name, total in sums.items()}
        return replace(result, partitions=by_partition(jobs, costs))


def _script(setup: Setup) -> TraceScript | PastScript:
    if setup.past is not None:
        return PastScript(setup.past, durations=setup.durations)
    return TraceScript(
        setup.trace,
        setup.offered,
        setup.accounting,
        durations=setup.durations,
        forks=setup.partitions.whole.forking is not None,
    )


def _timed(setup: Setup, seconds: list[float]) -> TimedPolicy | Mapping[str, TimedPolicy]:
    """The policy, or those of all partitions by their names."""
    if not setup.partitions.divided:
        return TimedPolicy(setup.policy, setup.stopwatch, seconds)
    own, names = setup.policies, [part.name for part in setup.partitions.parts]
    chosen = {name: own.get(name, setup.policy) for name in names}
    return {name: TimedPolicy(policy, setup.stopwatch, seconds) for name, policy in chosen.items()}


def _longest_grid_ms(settings: Settings) -> int:
    own = (partition.round_grid_ms for partition in settings.partitions.all)
    return max(settings.round_grid_ms, *own)


def _settings(setup: Setup) -> Settings:
    """The control loop's settings: those of production without repetitions of messages.

    No message is lost here, so nothing needs to be repeated. Where the cluster is divided, what a
    partition could not have may be there after a round period.
    """
    period_ms = Settings().round_period_ms if setup.partitions.divided else NEVER_MS
    return replace(
        setup.settings or Settings(round_gap_ms=setup.round_gap_ms),
        round_grid_ms=0 if setup.round_gap_s is None else setup.round_gap_s * 1000,
        round_period_ms=setup.round_period_ms or period_ms,
        register_timeout_ms=NEVER_MS,
        lost_worker_ms=NEVER_MS,
        worker_resend_ms=NEVER_MS,
        cloud_resend_ms=NEVER_MS,
        sync_period_ms=NEVER_MS,
        estimates=setup.estimates,
        preemption=setup.preemption,
        patience=setup.patience,
        spot_choice=setup.spot_choice,
        pool_share_ppm=setup.pool_share_ppm,
        price_limit_ppm=setup.price_limit_ppm,
        nodes={node.name: node for node in setup.nodes},
        partitions=setup.partitions,
        tenancy=setup.tenancy,
    )


def _terminate_grid_ms(setup: Setup) -> int:
    """The grid of terminations: the authors' scheduler terminates in rounds, Eva at any time."""
    compat = setup.accounting is Accounting.COMPAT and setup.past is None
    if compat and setup.round_gap_s is not None:
        return setup.round_gap_s * 1000
    return 0


def _check(setup: Setup) -> None:
    """Refuse traces that cannot end.

    Raises:
        InvalidTrace: There is no job, or two of one name, or one that no instance type can hold.
    """
    if not setup.trace.jobs:
        raise InvalidTrace(f"the trace {setup.trace.name} has no jobs")
    names = Counter(job.id for job in setup.trace.jobs)
    for name, number in names.items():
        if number > 1:
            raise InvalidTrace(f"two jobs of the trace {setup.trace.name} are named {name}")
    for name, message in misplaced(setup.trace.jobs):
        raise InvalidTrace(f"job {name} of the trace {setup.trace.name} has to wait: {message}")
    families = {offering.type.family for offering in setup.offered}
    holdable: dict[object, bool] = {}
    for job in setup.trace.jobs:
        for task in job.tasks:
            needs = task.resolved(families, job.spot)
            if needs not in holdable:
                holdable[needs] = any(
                    need.fits(offering.type.capacity)
                    for family, need in needs
                    for offering in setup.offered
                    if offering.type.family == family
                )
            if not holdable[needs]:
                raise InvalidTrace(
                    f"job {job.id} has a task that no instance type of the catalog can hold",
                    hint="leave the job out of the trace, or add a larger type to the catalog",
                )


def _longest_ms(job: TraceJob) -> float:
    """How long a task of a job takes alone at most, on the slowest family of any of them."""
    speeds = [speed for task in job.tasks for _, speed in task.speed_by_family]
    alone = max(work_ms(job, index) for index in range(len(job.tasks) if job.is_array else 1))
    return alone * MILLION / min(MILLION, *speeds) if speeds else alone
