"""Whatever goes wrong on the way, no task is lost, none runs twice, and the books agree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.work import Work
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.model.actions import TaskOrder
from eva_master.model.catalog import Catalog, InstanceType, Offering, spot_family
from eva_master.model.events import (
    CancelRequested,
    InstanceInterrupted,
    JobSubmitted,
    ResumeRequested,
    SuspendRequested,
)
from eva_master.model.job import (
    ArrayRules,
    ElasticGang,
    FailureRules,
    JobSpec,
    JobStage,
    Program,
    Stragglers,
    TaskSpec,
)
from eva_master.model.planning.suspension import Preemption
from eva_master.model.resources import NOTHING, Resources
from eva_master.ports import Policy
from eva_wire.values.bounds import ASKS_FOR_RETRY, JobKind
from eva_wire.values.ids import Family, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import JobState, RunState
from tests.drawing import drawn
from tests.fakes.archive import LoadedArchive
from tests.fakes.chaos import CapriciousPolicy, ChaoticWorld
from tests.fakes.policies.sizes import Fickle

CHAOS_MS = 1_500_000
QUICK = Settings(
    round_gap_ms=1_000,
    round_period_ms=60_000,
    register_timeout_ms=120_000,
    lost_worker_ms=60_000,
    cloud_resend_ms=30_000,
    sync_period_ms=30_000,
    window_ms=20_000,
    backoff_ms=2_000,
    rebalance_ms=30_000,
)


def _offering(name: str, cpus: int, price: int, limit: int | None = None) -> Offering:
    capacity = Resources(0, cpus * 1000, cpus * 2048)
    kind = InstanceType(name, Family("c"), capacity, acquisition_ms=7_000, setup_ms=20_000)
    return Offering(kind, Price(price), limit=limit)


CATALOG = (_offering("c.2", 2, 100_000), _offering("c.4", 4, 190_001), _offering("c.8", 8, 370_003))
LIMITED = tuple(
    replace(offering, limit=limit) for offering, limit in zip(CATALOG, (1, 1, 3), strict=True)
)


@dataclass(frozen=True)
class Arrival:
    at_ms: int
    kind: JobKind
    tasks: int
    cpus: int
    duration_s: int
    failures: int
    all_publish: bool
    cancel_after_ms: int | None
    after: tuple[int, ...]
    priority: int
    rests: tuple[tuple[int, int], ...]
    more: int = 0
    stragglers: Stragglers = Stragglers.KEEP
    slow: int = 1
    max_cost: int | None = None
    owner: str = "me"
    disk_gib: int = 0
    market: str = "listed"
    """Whether it may run on spot instances, too: then it is ``any``."""
    spans: bool = False


@dataclass(frozen=True)
class Story:
    """A cluster's life: what arrives, and all that goes wrong."""

    seed: int
    arrivals: list[Arrival]
    trouble: float
    fuses: list[int]
    cuts: list[tuple[int, int, int]]
    deaths: list[tuple[int, int]]
    wipes: list[tuple[int, int]]
    risks: list[tuple[int, int]]
    terminate_ms: int
    sold_out: float
    preemption: Preemption


times = st.integers(0, CHAOS_MS // 1000).map(lambda s: s * 1000)
arrivals = st.builds(
    Arrival,
    at_ms=times,
    kind=st.sampled_from(JobKind),
    tasks=st.integers(1, 3),
    cpus=st.sampled_from([1, 2, 3, 4, 8]),
    duration_s=st.integers(1, 900),
    failures=st.integers(0, 2),
    all_publish=st.booleans(),
    cancel_after_ms=st.none() | st.integers(0, 600_000),
    # The numbers of other arrivals; of those that are known by then it waits for.
    after=st.just(()) | st.lists(st.integers(0, 5), max_size=3, unique=True).map(tuple),
    priority=st.integers(0, 2),
    # How long after its submission its owner suspends it, and resumes it after how long.
    rests=st.just(())
    | st.lists(
        st.tuples(st.integers(0, 600_000), st.integers(0, 300_000)), min_size=1, max_size=3
    ).map(tuple),
    # An elastic gang has so many members more, which may rest.
    more=st.integers(0, 3),
    stragglers=st.sampled_from(Stragglers),
    slow=st.sampled_from([1, 1, 3]),
)
stories = st.builds(
    Story,
    seed=st.integers(0, 2**32),
    arrivals=st.lists(arrivals, min_size=1, max_size=6),
    trouble=st.sampled_from([0.0, 0.1, 0.4]),
    fuses=st.lists(st.integers(0, 60), max_size=4),
    cuts=st.lists(st.tuples(times, st.integers(0, 9), st.integers(0, 100_000)), max_size=4),
    deaths=st.lists(st.tuples(times, st.integers(0, 9)), max_size=3),
    wipes=st.lists(st.tuples(times, st.integers(0, 9)), max_size=2),
    risks=st.lists(st.tuples(times, st.integers(0, 9)), max_size=3),
    terminate_ms=st.sampled_from([1_000, 45_000]),
    sold_out=st.sampled_from([0.0, 0.3]),
    preemption=st.sampled_from(Preemption),
)


def _spec(number: int, arrival: Arrival) -> JobSpec:
    need = Resources(0, arrival.cpus * 1000, 1024, arrival.disk_gib * 1024)
    families = [Family("c")] + [spot_family(Family("c"))] * (arrival.market == "any")
    demand = tuple((family, need) for family in families)
    task = TaskSpec(Workload(f"w{arrival.cpus}"), Program("true"), demand)
    more = arrival.more if arrival.kind is JobKind.GANG else 0
    return JobSpec(
        f"job{number}",
        arrival.owner,
        (task,) * (arrival.tasks + more),
        elastic=ElasticGang(least=arrival.tasks if more else None),
        spans_zones=arrival.spans,
        kind=arrival.kind,
        duration_ms=arrival.duration_s * 1000,
        max_cost=arrival.max_cost,
        failing=FailureRules(retries=2),
        tenant=("default", "vision", "speech")[number % 3],
        priority=arrival.priority,
        array=ArrayRules(
            stragglers=arrival.stragglers if arrival.kind is JobKind.ARRAY else Stragglers.KEEP
        ),
    )


def _world(
    story: Story,
    settings: Settings = QUICK,
    policy: Policy | Mapping[str, Policy] | None = None,
    catalog: Catalog | None = None,
) -> ChaoticWorld:
    work: dict[int, Arrival] = dict(enumerate(story.arrivals))

    def work_of(run: RunId) -> Work:
        job = world.state.jobs[world.state.runs[run].job]
        arrival = work[int(job.spec.name.removeprefix("job"))]
        first = run.endswith("/0")
        return Work(
            # The task's own run may be slow, an extra one never is.
            arrival.duration_s * 1000 * (arrival.slow if first else 1),
            publishes=first or arrival.all_publish,
            failures=[ASKS_FOR_RETRY] * (arrival.failures if first else 0),
        )

    settings = replace(settings, preemption=story.preemption)
    world = ChaoticWorld(
        catalog or (LIMITED if story.preemption is Preemption.SUSPEND else CATALOG),
        policy or Fickle(CapriciousPolicy(story.seed, CHAOS_MS), story.seed, CHAOS_MS),
        seed=story.seed,
        trouble=story.trouble,
        fuses=story.fuses,
        settings=settings,
        terminate_ms=story.terminate_ms,
        work_of=work_of,
        truth=lambda _workload, others: 0.9 ** len(others),
    )
    rng = world._rng
    world.cloud.sold_out = lambda _: not world.inbox.calm and rng.random() < story.sold_out
    for number, arrival in enumerate(story.arrivals):
        _schedule(world, number, arrival)
    for at, index, back in story.cuts:
        world.timeline.after(at, lambda i=index, b=back: _pick(world, i, "cut", b))
    for at, index in story.deaths:
        world.timeline.after(at, lambda i=index: _pick(world, i, "die", 0))
    for at, index in story.wipes:
        world.timeline.after(at, lambda i=index: _pick(world, i, "wipe", 0))
    for at, index in story.risks:
        world.timeline.after(at, lambda i=index: _pick(world, i, "risk", 0))
    return world


def _schedule(world: ChaoticWorld, number: int, arrival: Arrival) -> None:
    command = f"submit-{number}"

    def arrive() -> None:
        # A user whose master died submits again, with the same command id.
        nonlocal spec
        if command not in world.answers.replies:
            spec = spec or replace(_spec(number, arrival), stage=JobStage(depends_on=others()))
            known = (
                LoadedArchive(world.journal.load).owned(spec.owner, spec.stage.depends_on).values()
            )
            ended = tuple(end for _, end in known if end is not None)
            world.inbox.post(JobSubmitted(command, spec, ended))
            world.timeline.after(20_000, arrive)

    def cancel() -> None:
        reply = world.answers.replies.get(command)
        if reply is not None and reply.job is not None:
            world.inbox.post(CancelRequested(f"cancel-{number}", reply.job))

    def ask(command: str, event: type[SuspendRequested | ResumeRequested]) -> None:
        # A user whose master died asks again; nobody asks before the job is known.
        reply = world.answers.replies.get(f"submit-{number}")
        if reply is not None and reply.job is not None and command not in world.answers.replies:
            world.inbox.post(event(command, reply.job, "me"))
            world.timeline.after(20_000, lambda: ask(command, event))

    def others() -> tuple[JobId, ...]:
        replies = [world.answers.replies.get(f"submit-{it}") for it in arrival.after]
        return tuple(it.job for it in replies if it is not None and it.job is not None)

    spec: JobSpec | None = None
    world.timeline.after(arrival.at_ms, arrive)
    for nth, (after, duration) in enumerate(arrival.rests):
        at = arrival.at_ms + after
        suspends, resumes = f"suspend-{number}-{nth}", f"resume-{number}-{nth}"
        world.timeline.after(at, lambda c=suspends: ask(c, SuspendRequested))
        world.timeline.after(at + duration, lambda c=resumes: ask(c, ResumeRequested))
        # Whatever came late: in the end it is to go on.
        world.timeline.after(2 * CHAOS_MS, lambda c=f"{resumes}-at-last": ask(c, ResumeRequested))
    if arrival.cancel_after_ms is not None:
        world.timeline.after(arrival.at_ms + arrival.cancel_after_ms, cancel)


def _pick(world: ChaoticWorld, index: int, what: str, back: int) -> None:
    agents = world.workers.agents()
    if not agents:
        return
    victim = agents[index % len(agents)]
    match what:
        case "cut":
            world.workers.cut(victim, back)
        case "wipe":
            world.workers.wipe(victim)
        case "risk":
            session = world.workers._agents[victim].session
            world.inbox.post(InstanceInterrupted(victim, session, None, "at risk"))
        case _ if victim not in world._settings.nodes:  # No cloud takes these away.
            world.cloud.fail(victim)


def _check_now(world: ChaoticWorld) -> None:
    for run, places in world.workers.running().items():
        assert len(places) == 1, f"{run} runs on {places}"
    for instance in world.workers.agents():
        agent = world.workers._agents[instance]
        load = NOTHING
        for attempt in agent.present():
            load = load + attempt.order.demand
        assert load.fits(agent._capacity), f"{instance} is overcommitted: {load}"
    _check_meetings(world)
    _check_sizes(world)
    _check_suspended(world)
    for run in world.workers.running():
        job = world.state.jobs[world.state.runs[run].job]
        others = [world.state.jobs[it] for it in job.spec.stage.depends_on]
        assert all(it.state is JobState.SUCCEEDED for it in others), f"{run} runs too early"
    assert len(world.state.dependencies) == sum(
        world.state.jobs[it].waits for it in world.state.active
    )


def _check_suspended(world: ChaoticWorld) -> None:
    """Nothing of a suspended job starts or has a place, and no round is held for it."""
    for name in world.state.active:
        job = world.state.jobs[name]
        assert job.resting_ms is None or job.state is not JobState.RUNNING
        if job.suspension is not None and job.state is not JobState.ENDING:
            for run in world.state.members(name):
                assert run.target is None, run
                assert run.state not in (RunState.STARTING, RunState.RUNNING), run
                assert run.id not in world.state.unplaced


def _check_meetings(world: ChaoticWorld) -> None:
    """No two gangs meet on one port, on whatever instances."""
    meetings = {
        (attempt.order.gang.port, attempt.order.job, attempt.order.attempt)
        for instance in world.workers.agents()
        for attempt in world.workers._agents[instance].present()
        if attempt.order.gang is not None
    }
    assert len({port for port, _, _ in meetings}) == len(meetings), meetings


def _check_sizes(world: ChaoticWorld) -> None:
    """Of an elastic gang one attempt runs at a time, with as many members as it was told."""
    for name in world.state.active:
        job, members = world.state.jobs[name], list(world.state.members(name))
        if job.spec.elastic.least is None:
            continue
        assert job.spec.elastic.least <= job.members <= len(members)
        running = {run.attempt for run in members if run.state is RunState.RUNNING}
        assert len(running) <= 1, f"{name} runs in attempts {running}"
        resting = members[job.members :]
        assert all(run.target is None for run in resting), resting
        assert world.state.tasks[name].placeable(job) == sum(
            run.state is RunState.WAITING and run.target is None for run in members[: job.members]
        ) - sum(run.instance is not None and run.state is RunState.WAITING for run in members)


def _check_gangs(world: ChaoticWorld) -> None:
    """The members of every attempt that was ever started met, and began from one checkpoint."""
    attempts: defaultdict[tuple[JobId, int], list[TaskOrder]] = defaultdict(list)
    for (_, attempt), order in world.history.orders.items():
        if order.gang is not None:
            attempts[order.job, attempt].append(order)
    for (job, attempt), orders in attempts.items():
        gangs = {(order.gang.address, order.gang.port, order.gang.size) for order in orders}
        assert len(gangs) == 1, f"{job} attempt {attempt} meets at {gangs}"
        assert all(order.index < order.gang.size for order in orders)
        assert all(order.tasks == order.gang.size for order in orders)
        assert all(order.gang.rank == order.index for order in orders)
        assert len({order.resume for order in orders}) == 1, f"{job} attempt {attempt}: {orders}"
        began = [world.history.origins.get((order.run, attempt)) for order in orders]
        lines = {origin and origin.attempt for origin in began}
        assert len(lines) == 1, f"{job} attempt {attempt} mixes checkpoints of attempts {lines}"
        before = attempts.get((job, attempt - 1))
        assert not before or before[0].gang.port != orders[0].gang.port


def _live(world: ChaoticWorld, story: Story) -> None:
    end = 20 * CHAOS_MS
    while True:
        if world.timeline.now() >= CHAOS_MS:
            world.calm_down()
            accepted = sum(command.startswith("submit-") for command in world.answers.replies)
            if accepted == len(story.arrivals) and world.quiet():
                return
        assert world.timeline.now() < end, _stuck(world)
        world.step()
        _check_now(world)


def _stuck(world: ChaoticWorld) -> str:
    state = world.state
    lines = [f"{j.id} {j.history}" for j in state.jobs.values() if j.id in state.active]
    lines += [f"{c.id} {c.target} {c.instance} {c.history}" for c in state.runs.values()]
    lines += [f"{i} {state.instances[i].history}" for i in state.live]
    return "never came to rest:\n" + "\n".join(lines)


def _check_end(world: ChaoticWorld, story: Story) -> None:
    state = world.state
    for number, arrival in enumerate(story.arrivals):
        job = state.jobs[world.answers.replies[f"submit-{number}"].job]
        allowed = {"succeeded"} if arrival.cancel_after_ms is None else {"succeeded", "cancelled"}
        others = [state.jobs[it] for it in job.spec.stage.depends_on]
        if any(it.state is JobState.CANCELLED for it in others):
            assert job.state is JobState.CANCELLED
            assert all(run.attempt == 0 for run in state.members(job.id))
            assert not state.job_accounts[job.id].charged if job.id in state.job_accounts else True
        else:
            assert job.state in allowed, (job.id, job.state, job.reason)
            assert all(job.arrived_ms >= it.finished_ms for it in others) or job.waits
    started = [
        (run, attempt)
        for run, attempt, instance in world.history.starts
        if instance not in world.workers.wiped
    ]
    assert len(started) == len(set(started)), "an attempt was started twice"
    _check_gangs(world)
    bill = ledger.bill(state, world.timeline.now())
    machines = world.cloud.bill()
    for instance, machine in machines.items():
        expected = machine.offering.price * (machine.gone_ms - machine.up_ms)
        assert bill.instances[instance].charged == expected
    assert set(bill.instances) - set(world._settings.nodes) == set(machines)
    assert bill.charged == bill.idle + sum(account.charged for account in bill.jobs.values())


@drawn(25)
@given(stories)
def test_nothing_is_lost_doubled_or_leaked(story: Story) -> None:
    world = _world(story)
    _live(world, story)
    _check_end(world, story)


@drawn(3)
@given(stories)
def test_same_seed_same_history(story: Story) -> None:
    def history() -> list[object]:
        world = _world(story)
        _live(world, story)
        return [
            world.history.starts,
            [job.history for job in world.state.jobs.values()],
            world.cloud.bill(),
            ledger.bill(world.state, Millis(0)),
        ]

    assert history() == history()
