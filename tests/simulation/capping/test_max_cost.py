"""Jobs with a `max_cost`: they stop while the rest still pays for the stop, and cost no more."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.features.capping import memory
from eva_master.control.features.capping.spending import spending
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import Purchase
from eva_master.model.events import Quoted, ResumeRequested, SuspendRequested, Tick
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.fleet.nodes import OwnedNode, taken_for_empty_ms
from eva_master.model.job import Deadline, ElasticGang, JobSpec, JobStage, Restarts
from eva_master.model.planning.suspension import Suspender
from eva_master.model.records import TaskRun
from eva_master.model.resources import Resources
from eva_master.packing.valuation.job_valuation import Reservation
from eva_wire.values.errors import CostCapReached
from eva_wire.values.ids import MILLION, InstanceId, JobId, Millis, Price, RunId, micro_usd
from eva_wire.values.states import JobState, RunState
from tests.fakes.hand_driven import JOB, SLOW, Cluster
from tests.fakes.jobs import LARGE, MEDIUM, SMALL, job

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
GRACE_MS = 30_000
SETTINGS = Settings(feed=True, checkpoint_ms=10_000)
DELAYS = EqualDelays(fetch_ms=5_000, start_ms=1_000, stop_ms=20_000, report_ms=5_000)
FENCE_MS = 60_000
RESERVE_MS = GRACE_MS + SETTINGS.checkpoint_ms
EVA = policies()["eva"]


class World(SimulatedCluster):
    """A cluster on which money is short."""

    def __init__(
        self,
        *catalog: object,
        policy: str = "eva",
        settings: Settings = SETTINGS,
        start: Millis = Millis(0),
    ) -> None:
        kind = policies()[policy]
        super().__init__(
            catalog or (SMALL, MEDIUM, LARGE),  # type: ignore[arg-type]
            kind.build(kind.config()),
            settings=settings,
            delays=DELAYS,
            start=start,
        )

    def play(self, minutes: float) -> None:
        until = self.timeline.now() + round(minutes * MINUTE_MS)
        self.timeline.after(round(minutes * MINUTE_MS), lambda: None)
        self.run(lambda: self.timeline.now() >= until)

    def resume(self, name: str, dollars: float | None = None) -> None:
        raised = None if dollars is None else round(dollars * MILLION)
        self.inbox.post(ResumeRequested(f"resume-{raised}", JobId(name), "me", raised))
        self.play(1)

    def feed(self) -> list[FeedEvent]:
        assert isinstance(self.journal, MemoryJournal)
        return self.journal.feed

    def spent(self, name: str) -> float:
        """Dollars that the books have."""
        return micro_usd(self.state.job_accounts[JobId(name)].charged) / MILLION


def capped(name: str, *cpus: int, dollars: float, **more: object) -> JobSpec:
    spec = job(name, *cpus, minutes=120, **more)  # type: ignore[arg-type]
    return replace(
        spec, max_cost=round(dollars * MILLION), restarts=Restarts(grace_period_ms=GRACE_MS)
    )


def hourly(world: World, name: str) -> float:
    """The price of the instances of a job, in dollars: no less than its share."""
    places = {run.instance for run in world.state.members(JobId(name)) if run.instance}
    return sum(world.state.instances[place].offering.price for place in places) / MILLION


@pytest.mark.parametrize(
    "spec",
    [
        capped("a", 2, dollars=0.03),
        capped("a", 2, 2, dollars=0.06),
        capped("a", 2, 2, 2, array=True, dollars=0.06),
        replace(
            capped("a", 1, 1, 1, 1, array=True, dollars=0.05),
            array=replace(capped("a", 1, dollars=1).array, concurrency=2),
        ),
    ],
    ids=["one task", "gang", "array", "array with concurrency"],
)
@pytest.mark.parametrize("policy", ["eva", "no_packing"])
def test_a_job_stops_below_its_cap_and_close_to_it(spec: JobSpec, policy: str) -> None:
    world = World(policy=policy)
    world.submit(spec)
    world.play(6)
    price = hourly(world, "a-1")
    world.play(300)
    record = world.state.jobs[JobId("a-1")]
    assert record.suspension is not None
    assert record.suspension.by is Suspender.COST
    assert not world.state.live, "nothing is paid any more"
    assert spec.max_cost is not None
    cap = spec.max_cost / MILLION
    assert world.spent("a-1") <= cap
    assert world.spent("a-1") >= cap - price * (RESERVE_MS + MINUTE_MS) / HOUR_MS
    assert {run.generation for run in world.state.in_hand(JobId("a-1"))} <= {1, 2, 3}
    events = [event.text for event in world.feed() if event.kind is FeedKind.CAPPED]
    assert [text.split(";")[0].split(":")[0] for text in events] == [
        "most of its max_cost is spent",
        "suspended at its max_cost",
    ]


def test_a_share_that_grows_while_nothing_moves_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured speeds make the neighbour's task worth less, so that the job pays more."""
    world = World(LARGE)
    cap = 0.16
    world.submit(capped("a", 2, dollars=cap))
    world.submit(job("neighbour", 6, minutes=600))
    world.play(20)
    (place,) = world.state.live
    reservation = State.reservation

    def shifted(state: State, run: TaskRun) -> Reservation:
        found = reservation(state, run)
        if run.job == "a-1":
            return found
        assert found.offering is not None
        return replace(found, offering=replace(found.offering, price=Price(found.price // 4)))

    monkeypatch.setattr(State, "reservation", shifted)
    world.play(300)
    assert list(world.state.live) == [place], "nothing moved"
    record = world.state.jobs[JobId("a-1")]
    assert record.suspension is not None
    assert 0.8 * cap < world.spent("a-1") <= cap


def test_the_spending_of_a_large_job_is_not_worked_out_at_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of its places is charged anew; tasks lose them one after the other."""
    looks = []

    def counted(*given: object) -> object:
        looks.append(given[-1])
        return spending(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(memory, "spending", counted)
    world = World(SMALL, policy="no_packing")
    tasks = 120
    world.submit(capped("a", *[2] * tasks, dollars=100, array=True))
    world.play(8)
    assert len(world.state.in_hand(JobId("a-1"))) == tasks
    looks.clear()
    for index, place in enumerate(world.workers.agents()):
        world.timeline.after(40 * index, partial(world.workers.leave, place))
    world.play(1)
    moved = sum(run.attempt > 1 or not run.instance for run in world.state.runs.values())
    assert moved > 0.8 * tasks
    assert len(looks) < 0.6 * tasks


def test_it_goes_on_with_a_higher_cap_alone_and_from_its_checkpoint() -> None:
    world = World()
    world.submit(capped("a", 2, dollars=0.03))
    world.play(60)
    spent = world.spent("a-1")
    world.resume("a-1")
    world.resume("a-1", 0.02)
    for raised in (None, 20_000):
        error = world.answers.replies[f"resume-{raised}"].error
        assert isinstance(error, CostCapReached)
        assert "$" not in error.hint, "a shell would take what follows for a variable"
    assert world.state.jobs[JobId("a-1")].suspension is not None
    world.resume("a-1", 0.05)
    assert world.state.jobs[JobId("a-1")].suspension is None
    world.play(120)
    assert world.state.jobs[JobId("a-1")].suspension is not None, "at the new cap"
    assert spent < world.spent("a-1") <= 0.05
    world.resume("a-1", 10)
    assert world.run(world.quiet, limit_ms=600 * MINUTE_MS)
    assert world.state.jobs[JobId("a-1")].state is JobState.SUCCEEDED


def test_a_job_without_a_cap_gets_none_below_what_it_has_cost() -> None:
    world = World()
    world.submit(job("a", 2, minutes=120))
    world.play(60)
    world.resume("a-1", 0.02)
    error = world.answers.replies["resume-20000"].error
    assert isinstance(error, CostCapReached)
    assert "a-1 has cost $0.0" in error.message
    assert world.state.jobs[JobId("a-1")].suspension is None
    assert world.state.jobs[JobId("a-1")].max_cost is None
    account = ledger.job_account(world.state, JobId("a-1"), world.timeline.now())
    cap = round(micro_usd(account.charged) / MILLION + 0.02, 3)
    world.resume("a-1", cap)
    world.play(50)
    assert world.state.jobs[JobId("a-1")].suspension is not None, "at the cap that it was given"
    assert cap - 0.01 < world.spent("a-1") <= cap


def test_a_neighbour_without_a_cap_runs_on_and_pays_the_rest() -> None:
    world = World(MEDIUM)
    world.submit(capped("a", 2, dollars=0.03))
    world.submit(job("b", 2, minutes=120))
    world.play(100)
    assert world.state.jobs[JobId("a-1")].suspension is not None
    assert world.spent("a-1") <= 0.03
    assert {run.state.value for run in world.state.members(JobId("b-2"))} == {"running"}


def test_a_job_alone_pays_more_once_its_neighbour_has_ended() -> None:
    world = World(MEDIUM)
    world.submit(job("b", 2, minutes=8))
    world.submit(capped("a", 2, dollars=0.06))
    world.play(200)
    assert world.state.jobs[JobId("a-2")].suspension is not None
    assert 0.04 <= world.spent("a-2") <= 0.06


def test_a_price_that_rises_brings_the_end_nearer() -> None:
    """A quarter of the cap is spent at one price, the rest at four times that."""
    spot = replace(SLOW, purchase=Purchase.SPOT)
    cluster = Cluster(State((spot,)))
    cluster.start(JOB + "spot: allowed\nmax_cost: $0.10\ngrace_period: 30s\n", on=spot)
    hourly = spot.price / MILLION
    quarter_ms = round(0.025 / hourly * HOUR_MS)
    cluster.handle(Quoted(((spot.id, Price(4 * spot.price)),)), at=quarter_ms)
    rest_ms = 0.075 / (4 * hourly) * HOUR_MS
    reserve_ms = 30_000 + cluster.machine.settings.checkpoint_ms
    due_ms = round(quarter_ms + rest_ms - reserve_ms)
    cluster.handle(Tick(), at=due_ms - 1_000)
    cluster.handle(Tick(), at=due_ms - 999)
    assert cluster.state.jobs[JobId("job-1")].suspension is None
    cluster.handle(Tick(), at=due_ms + 1_000)
    cluster.handle(Tick(), at=due_ms + 1_001)
    suspension = cluster.state.jobs[JobId("job-1")].suspension
    assert suspension is not None
    assert suspension.by is Suspender.COST
    assert cluster.state.runs[RunId("job-1/0")].state is RunState.STOPPING


def test_a_new_master_keeps_the_cap() -> None:
    world = World(SMALL)
    world.submit(capped("a", 2, dollars=0.03))
    world.play(6)
    world.restart()
    world.play(60)
    record = world.state.jobs[JobId("a-1")]
    assert record.suspension is not None
    assert record.suspension.by is Suspender.COST
    assert world.spent("a-1") <= 0.03


@pytest.mark.parametrize("silent_minutes", [10, 19])
def test_a_silent_agent_overspends_a_cap_by_no_more_than_a_stop_and_a_minute(
    silent_minutes: int,
) -> None:
    """At $0.10 an hour the cap is reached after 18 minutes of an instance that is up."""
    world = World(SMALL)
    world.submit(capped("a", 2, dollars=0.03))
    world.play(silent_minutes - 0.5)
    (place,) = world.state.live
    world.workers.cut(place, back_after_ms=10**9)
    world.play(60)
    assert not world.state.live
    assert world.spent("a-1") <= 0.03 + 0.1 * (GRACE_MS + MINUTE_MS) / HOUR_MS
    record = world.state.jobs[JobId("a-1")]
    if record.suspension is not None:
        assert world.spent("a-1") >= 0.03 - 0.1 * RESERVE_MS / HOUR_MS


@pytest.mark.parametrize("silent_minutes", [10, 17.5])
def test_a_silent_own_node_overspends_a_cap_no_longer_than_its_lease(silent_minutes: float) -> None:
    """Nothing reaches it before; at $0.10 an hour the cap is reached after 18 minutes."""
    rack = replace(SMALL.type, name="own.rack")
    sold = replace(SMALL, type=rack, zone="nodes", purchase=Purchase.OWNED)
    node = OwnedNode(InstanceId("rack"), sold, FENCE_MS)
    too_small = replace(SMALL.type, name="c.0", capacity=Resources(0, 500, 512))
    settings = replace(SETTINGS, nodes={node.name: node})
    world = World(replace(SMALL, type=too_small), settings=settings)
    world.submit(capped("a", 2, dollars=0.03))
    world.play(silent_minutes)
    world.workers.cut(node.name, back_after_ms=10**9)
    world.play(60)
    # The end of a session is heard in a turn of its own.
    spent, lease_ms = world.spent("a-1"), taken_for_empty_ms(FENCE_MS) + 2_000
    assert spent <= 0.1 * (silent_minutes * MINUTE_MS + lease_ms) / HOUR_MS
    assert spent <= 0.03 + 0.1 * lease_ms / HOUR_MS
    assert not any(run.instance for run in world.state.members(JobId("a-1")))


def test_a_deadline_loses_against_a_cap() -> None:
    """Two hours of work at $0.10 an hour are due in three hours, and may cost $0.05."""
    world = World(SMALL)
    spec = capped("a", 2, dollars=0.05)
    world.submit(replace(spec, deadline=Deadline(within_ms=3 * HOUR_MS, fails=True)))
    world.play(120)
    suspension = world.state.jobs[JobId("a-1")].suspension
    assert suspension is not None
    assert suspension.by is Suspender.COST
    assert not world.state.live
    assert 0.045 <= world.spent("a-1") <= 0.05
    world.play(120)  # beyond the deadline
    assert world.spent("a-1") <= 0.05


def test_one_that_a_user_has_suspended_stays_so() -> None:
    world = World(SMALL)
    world.submit(capped("a", 2, dollars=0.03))
    world.play(6)
    world.inbox.post(SuspendRequested("s", JobId("a-1"), "me"))
    world.play(100)
    suspension = world.state.jobs[JobId("a-1")].suspension
    assert suspension is not None
    assert suspension.by is Suspender.USER
    world.resume("a-1")
    world.play(100)
    assert world.spent("a-1") <= 0.03


def test_an_elastic_gang_and_the_job_after_it_have_a_cap_each() -> None:
    world = World()
    gang = replace(capped("a", 2, 2, 2, 2, dollars=0.06), elastic=ElasticGang(least=1))
    after = replace(capped("b", 2, dollars=0.03), stage=JobStage(depends_on=(JobId("a-1"),)))
    world.submit(gang)
    world.submit(after)
    world.play(300)
    assert world.state.jobs[JobId("a-1")].suspension is not None
    assert 0.05 < world.spent("a-1") <= 0.06
    assert world.state.jobs[JobId("b-2")].state is JobState.PENDING
    assert not world.state.live
    world.resume("a-1", 10)
    world.play(900)
    assert world.state.jobs[JobId("a-1")].state is JobState.SUCCEEDED
    assert world.state.jobs[JobId("b-2")].suspension is not None
    assert 0.02 < world.spent("b-2") <= 0.03
