"""A trace under a policy, from the first arrival until the cloud is empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from eva_master.control.settings import Settings
from eva_master.model.catalog import Catalog
from eva_master.model.changes import Changes, Round
from eva_master.model.errors import InvalidTrace, SimulationStalled
from eva_master.model.events import Event, JobSubmitted, Read
from eva_master.model.ids import CopyId
from eva_master.model.plan import Plan, PolicyMemory
from eva_master.model.snapshot import Snapshot
from eva_master.model.trace import Trace, TraceJob
from eva_master.ports import Policy
from eva_master.simulation.chronicle import Books
from eva_master.simulation.clock import VirtualInbox
from eva_master.simulation.delays import Accounting, TaskDelays, Toll
from eva_master.simulation.faults import Faults, Misfortune
from eva_master.simulation.outcome import (
    Counts,
    Outcome,
    Planning,
    Record,
    instance_figures,
    job_figures,
    outcome,
)
from eva_master.simulation.reports import Telling
from eva_master.simulation.submission import STEPS_PER_S, spec_of, stop_ms, work_ms
from eva_master.simulation.truth import UNDISTURBED, Truth
from eva_master.simulation.work import Work
from eva_master.simulation.world import World

_NEVER_MS = 10**15
"""What is repeated or awaited only because messages may be lost; here none are."""
_PATIENCE = 20
"""A cluster in which nothing has started or ended for so many times the longest job is stuck."""
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Setup:
    """What is simulated.

    Attributes:
        trace: What arrives.
        catalog: What the cloud sells, with the delays of each type.
        policy: The scheduler under test.
        truth: How much tasks slow each other down; the scheduler learns of it from reports alone.
        accounting: When files and images come to an instance.
        round_gap_s: Plans are made at multiples of it, `None` for whenever something happens.
        round_gap_ms: From one plan to the next at least, where plans are made at any time.
        durations: Whether jobs state how long they take alone.
        faults: What goes wrong.
        seed: Of what goes wrong.
        latency_ms: What the planner and the object store take to answer.
        keep_record: Whether every round, stay, job and bill is kept.
        stopwatch: Real seconds, to time the policy; without it that is not timed.
    """

    trace: Trace
    catalog: Catalog
    policy: Policy
    truth: Truth = UNDISTURBED
    accounting: Accounting = Accounting.COMPAT
    round_gap_s: int | None = None
    round_gap_ms: int = 1_000
    durations: bool = True
    faults: Faults = field(default_factory=Faults)
    seed: int = 0
    latency_ms: int = 0
    keep_record: bool = False
    stopwatch: Callable[[], float] = field(default=lambda: 0.0, repr=False)


def simulate(setup: Setup) -> Outcome:
    """Run a trace.

    Raises:
        InvalidTrace: It is empty, or no instance type can hold a task of it.
        SimulationStalled: The policy leaves jobs without a place for good.
    """
    return Simulation(setup).run()


class TimedPolicy:
    """A policy whose every decision is timed."""

    def __init__(self, policy: Policy, stopwatch: Callable[[], float]) -> None:
        self._policy = policy
        self._stopwatch = stopwatch
        self.name = policy.name
        self.seconds: list[float] = []

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy.plan`."""
        start = self._stopwatch()
        decided = self._policy.plan(snapshot, memory)
        self.seconds.append(self._stopwatch() - start)
        return decided


class Rounds:
    """A journal of which nothing is kept but the rounds: a simulated master never dies.

    Attributes:
        kept: The rounds, where they are to be kept.
        count: How many there were.
        changed: How many of them launched or moved anything.
        full: How many of these did a full reconfiguration.
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self.kept: list[Round] = []
        self.count = 0
        self.changed = 0
        self.full = 0

    def load(self) -> Changes:
        """There is nothing."""
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
    """Counts what is heard of."""

    events = 0

    def post(self, event: Event | Read) -> None:
        """See `eva_master.ports.Inbox.post`."""
        self.events += 1
        super().post(event)


class TraceWorld(World):
    """A world whose inbox counts."""

    inbox: CountingInbox

    def _make_inbox(self) -> CountingInbox:
        return CountingInbox(self.timeline)


class Simulation:
    """One run of a trace."""

    def __init__(self, setup: Setup) -> None:
        _check(setup)
        self._setup = setup
        self._jobs: Mapping[str, TraceJob] = {job.id: job for job in setup.trace.jobs}
        self._families = sorted({offering.type.family for offering in setup.catalog})
        self._policy = TimedPolicy(setup.policy, setup.stopwatch)
        self._rounds = Rounds(keep=setup.keep_record)
        self._books = Books(stays=[] if setup.keep_record else None)
        settings = _settings(setup)
        self.world = TraceWorld(
            setup.catalog,
            self._policy,
            settings=settings,
            terminate_grid_ms=_terminate_grid_ms(setup),
            delays=TaskDelays(self._toll_of, setup.accounting),
            truth=setup.truth,
            work_of=self._work_of,
            reports=partial(Telling, window_ms=settings.window_ms),
            chronicle=self._books,
            latency_ms=setup.latency_ms,
            journal=self._rounds,
        )
        self._steps = 0
        Misfortune(
            setup.faults,
            setup.seed,
            timeline=self.world.timeline,
            cloud=self.world.cloud,
            workers=self.world.workers,
        )

    def run(self) -> Outcome:
        """See `simulate`."""
        self._arrive(0)
        world, total = self.world, len(self._setup.trace.jobs)
        longest = max(work_ms(job) for job in self._setup.trace.jobs)
        patience, ended, seen_ms = max(_DAY_MS, _PATIENCE * longest), -1, 0
        while not (ended == total and not world.state.live and not world.cloud.existing()):
            world.loop.step()
            self._steps += 1
            state = world.state
            if state.counters.completions != ended or not state.active:
                ended, seen_ms = state.counters.completions, world.timeline.now()
            elif world.timeline.now() - seen_ms > patience:
                raise _stalled(world)
        return self._sum_up()

    # -- what arrives ----------------------------------------------------------------------------

    def _arrive(self, index: int) -> None:
        jobs = self._setup.trace.jobs
        if index == len(jobs):
            return
        job, timeline = jobs[index], self.world.timeline

        def arrive() -> None:
            spec = spec_of(job, self._families, durations=self._setup.durations)
            self.world.inbox.post(JobSubmitted(f"submit-{job.id}", spec))
            self._arrive(index + 1)

        timeline.after(job.arrival_ms - timeline.now(), arrive)

    def _recorded(self, copy: CopyId) -> tuple[TraceJob, int]:
        state = self.world.state
        known = state.copies[copy]
        return self._jobs[state.jobs[known.job].spec.name], known.index

    def _work_of(self, copy: CopyId) -> Work:
        job, _ = self._recorded(copy)
        saves = self._setup.faults.checkpoint_ms
        return Work(work_ms(job), steps_per_s=STEPS_PER_S, saves_every_ms=saves)

    def _toll_of(self, copy: CopyId) -> Toll:
        job, index = self._recorded(copy)
        task = job.tasks[index]
        return Toll(task.image, task.fetch_ms, task.build_ms, job.init_ms, stop_ms(task))

    # -- what it came to -------------------------------------------------------------------------

    def _sum_up(self) -> Outcome:
        world, state, books = self.world, self.world.state, self._books
        machines = world.cloud.bill()
        jobs = [
            job_figures(
                job,
                books,
                work_ms(self._jobs[job.spec.name]),
                sum(copy.moves for copy in state.members(job.id)),
            )
            for job in state.jobs.values()
        ]
        counts = Counts(
            launched=world.cloud.launches,
            rounds=self._rounds.count,
            reconfigurations=self._rounds.changed,
            full=self._rounds.full,
            events=world.inbox.events,
            steps=self._steps,
            end_ms=max(machine.gone_ms or 0 for machine in machines.values()),
        )
        record = Record()
        if self._setup.keep_record:
            record = Record(
                tuple(self._rounds.kept),
                tuple(books.stays or ()),
                tuple(jobs),
                tuple(
                    instance_figures(machine, state.instances[name].requested_ms)
                    for name, machine in machines.items()
                ),
            )
        planning = Planning.of(self._policy.seconds)
        return outcome(jobs, books, machines, counts, planning=planning, record=record)


def _settings(setup: Setup) -> Settings:
    """The control loop's settings: production's, without what is for losses of messages."""
    return Settings(
        round_period_ms=_NEVER_MS,
        round_gap_ms=setup.round_gap_ms if setup.round_gap_s is None else 0,
        round_grid_ms=0 if setup.round_gap_s is None else setup.round_gap_s * 1000,
        register_timeout_ms=_NEVER_MS,
        lost_worker_ms=_NEVER_MS,
        worker_resend_ms=_NEVER_MS,
        cloud_resend_ms=_NEVER_MS,
        sync_period_ms=_NEVER_MS,
    )


def _terminate_grid_ms(setup: Setup) -> int:
    """The authors' scheduler gives instances back in its rounds; ours does as soon as it can."""
    if setup.accounting is Accounting.COMPAT and setup.round_gap_s is not None:
        return setup.round_gap_s * 1000
    return 0


def _check(setup: Setup) -> None:
    """Refuse what cannot end.

    Raises:
        InvalidTrace: No job, or one that no instance type can hold.
    """
    if not setup.trace.jobs:
        raise InvalidTrace(f"the trace {setup.trace.name} has no jobs")
    families = {offering.type.family for offering in setup.catalog}
    known: dict[object, bool] = {}
    for job in setup.trace.jobs:
        for task in job.tasks:
            needs = task.resolved(families)
            if needs not in known:
                known[needs] = any(
                    need.fits(offering.type.capacity)
                    for family, need in needs
                    for offering in setup.catalog
                    if offering.type.family == family
                )
            if not known[needs]:
                raise InvalidTrace(
                    f"job {job.id} has a task that no instance type of the catalog can hold",
                    hint="leave the job out of the trace, or add a larger type to the catalog",
                )


def _stalled(world: World) -> SimulationStalled:
    waiting = {
        copy.waiting_for or "no place"
        for job in world.state.active
        for copy in world.state.members(job)
    }
    days = world.timeline.now() // _DAY_MS
    return SimulationStalled(
        f"on day {days} {len(world.state.active)} jobs have not ended, and nothing goes on",
        hint=f"they wait: {'; '.join(sorted(waiting)[:3])}",
    )
