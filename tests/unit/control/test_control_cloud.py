"""What the machine does when the cloud refuses, forgets, changes prices or wants instances back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.app.policy_registry import policies
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.learning.market.interruptions import Interruptions
from eva_master.model.actions import (
    Action,
    FetchFiles,
    LaunchInstance,
    RequestPlan,
    StartTask,
    StopTask,
    TerminateInstance,
)
from eva_master.model.catalog import InstanceType, Offering, Purchase, spot_family
from eva_master.model.events import (
    CloudListed,
    InstanceGone,
    InstanceInterrupted,
    InstanceUp,
    JobSubmitted,
    LaunchFailed,
    Phase,
    PlanReady,
    Quoted,
    RunReport,
    Tick,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, Millis, Price, RunId, Workload
from eva_wire.values.states import InstanceState, RunState

HOUR_MS = 3_600_000
REGISTER_MS = 600_000
C = Family("c")
SIZE = Resources(0, 1000, 1024)
ZONES = tuple(
    Offering(InstanceType("c.1", C, SIZE), Price(1_000_000), zone=zone) for zone in ("za", "zb")
)
SPOT = Offering(
    InstanceType("c.1", spot_family(C), SIZE, setup_ms=100_000),
    Price(400_000),
    zone="za",
    purchase=Purchase.SPOT,
    interruptions_ppm=100_000,
)
CATALOG = (*ZONES, SPOT)
RUN = RunId("job-1/0")
FIRST = InstanceId("i00001")
SECOND = InstanceId("i00002")


def machine(**changed: int) -> Machine:
    settings = Settings(round_gap_ms=0, register_timeout_ms=REGISTER_MS, **changed)
    return Machine(State(CATALOG), settings)


def submitted() -> JobSubmitted:
    demand = ((C, SIZE), (spot_family(C), SIZE))
    task = TaskSpec(Workload("w"), Program("true"), demand)
    return JobSubmitted("command", JobSpec("job", "me", (task,)))


def request(actions: list[Action]) -> RequestPlan:
    (found,) = (it for it in actions if isinstance(it, RequestPlan))
    return found


def launched(it: Machine, actions: list[Action], on: Offering, now: int) -> list[Action]:
    """Answer a request for a plan: the job goes to a new instance."""
    offering = next(o for o in request(actions).snapshot.catalog if o.id == on.id)
    plan = Plan((NewInstance(0, offering),), (Assign(RUN, 0),))
    return it.handle([PlanReady(request(actions).round, plan, None)], Millis(now))


def passed(it: Machine, actions: list[Action], now: int) -> list[Action]:
    """Answer a request for a plan: nothing is to change."""
    return it.handle([PlanReady(request(actions).round, Plan(), None)], Millis(now))


def running(it: Machine, on: Offering) -> None:
    """Have the job run on an instance of an offering from second 20 on."""
    launched(it, it.handle([submitted()], Millis(0)), on, 1)
    it.handle([InstanceUp(FIRST, Millis(10_000))], Millis(10_000))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(20_000))
    it.handle([reported(Phase.RUNNING)], Millis(20_000))
    assert it.state.runs[RUN].state is RunState.RUNNING


def reported(phase: Phase, **more: int) -> WorkerRegistered:
    report = RunReport(RUN, 1, phase, stopped=phase is Phase.EXITED, **more)
    return WorkerRegistered(FIRST, 2 if phase is Phase.RUNNING else 3, SIZE, (report,))


def told(it: Machine) -> str:
    return it.state.runs[RUN].waiting_for


def offering(picture: Snapshot, like: Offering) -> Offering:
    return next(it for it in picture.catalog if it.id == like.id)


def test_a_refused_launch_is_planned_anew_and_its_job_says_why() -> None:
    it = machine()
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    failed = LaunchFailed(FIRST, Millis(180_000), "no capacity: none left")
    actions = it.handle([failed], Millis(2_000))
    picture = request(actions).snapshot
    assert not offering(picture, ZONES[0]).available(Millis(179_999))
    assert offering(picture, ZONES[1]).available(Millis(2_000))
    assert told(it) == "c.1@za/on-demand could not be launched: no capacity: none left"
    launched(it, actions, ZONES[1], 3_000)
    # It still says so while the other one boots.
    assert "no capacity" in told(it)
    assert it.state.instances[SECOND].offering == ZONES[1]


def test_what_else_would_be_refused_is_not_tried() -> None:
    it = machine()
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    failed = LaunchFailed(FIRST, Millis(600_000), "quota", also=(ZONES[1].id,))
    actions = it.handle([failed], Millis(2_000))
    catalog = request(actions).snapshot.catalog
    assert [o.why_unavailable for o in catalog] == ["quota", "quota", ""]
    passed(it, actions, 3_000)
    # When the time is over there is a plan again, with nothing else happening.
    later = it.handle([Tick()], Millis(600_000))
    assert [o.id for o in request(later).snapshot.catalog if o.available(Millis(600_000))] == [
        o.id for o in CATALOG
    ]


def test_why_nothing_is_bought_outlives_the_master() -> None:
    it = machine()
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    it.handle([LaunchFailed(FIRST, Millis(180_000), "no capacity")], Millis(2_000))
    restored = State.restored(CATALOG, it.take_changes())
    assert restored.catalog == it.state.catalog
    assert restored.catalog[0].why_unavailable == "no capacity"


def test_an_instance_that_never_registers_is_given_back_and_its_offering_left_alone() -> None:
    it = machine()
    actions = it.handle([submitted()], Millis(0))
    pauses, now = [], 0
    for number in (1, 2, 3):
        name = InstanceId(f"i{number:05}")
        launched(it, actions, ZONES[0], now)
        it.handle([InstanceUp(name, Millis(now))], Millis(now))
        now += REGISTER_MS
        actions = it.handle([Tick()], Millis(now))
        assert TerminateInstance(name) in actions
        assert "did not register within 600 s" in it.state.instances[name].reason
        assert told(it) == f"the worker of {name} did not register within 600 s"
        picture = request(actions).snapshot
        until = offering(picture, ZONES[0]).unavailable_until
        assert until is not None
        pauses.append(until - now)
        passed(it, actions, now)
        gone = InstanceGone(name, Millis(now), Millis(now))
        passed(it, it.handle([gone], Millis(now)), now)
        now = until
        actions = it.handle([Tick()], Millis(now))
    assert pauses == [REGISTER_MS, 2 * REGISTER_MS, 4 * REGISTER_MS]


def test_what_nobody_asked_for_is_terminated_after_a_grace_period() -> None:
    it = machine(unwanted_ms=120_000)
    stray = CloudListed(((InstanceId("i00099"), Millis(5)),))
    assert TerminateInstance(InstanceId("i00099")) not in it.handle([stray], Millis(0))
    # Not listed once: the time begins again.
    it.handle([CloudListed(())], Millis(60_000))
    for now in (100_000, 219_999):
        assert TerminateInstance(InstanceId("i00099")) not in it.handle([stray], Millis(now))
    assert TerminateInstance(InstanceId("i00099")) in it.handle([stray], Millis(220_000))


def test_what_is_gone_and_turns_up_again_is_terminated_at_once() -> None:
    it = machine(unwanted_ms=120_000)
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1)
    it.handle([InstanceGone(FIRST, None, Millis(2))], Millis(2))
    listed = CloudListed(((FIRST, Millis(3)),))
    assert TerminateInstance(FIRST) in it.handle([listed], Millis(3))


def test_an_instance_that_is_wanted_and_not_listed_is_asked_about() -> None:
    it = machine()
    running(it, ZONES[0])
    asked = it.handle([CloudListed(())], Millis(200_000))
    assert [a for a in asked if isinstance(a, LaunchInstance)] == [
        LaunchInstance(FIRST, ZONES[0], 1, existed=True)
    ]


def test_new_prices_count_from_now_on() -> None:
    it = machine()
    running(it, SPOT)
    it.handle([Quoted(((SPOT.id, Price(500_000)),))], Millis(30_000))
    assert it.state.instance_accounts[FIRST].until_ms == 30_000
    assert it.state.instances[FIRST].offering.price == 500_000
    assert it.state.instances[FIRST].paid == ((30_000, SPOT.price),)
    assert it.state.catalog[2].price == 500_000
    assert it.state.reservation(it.state.runs[RUN]).price == 500_000
    # One that is not for sale is passed over.
    it.handle([Quoted(((InstanceId("x"), Price(1)),))], Millis(31_000))  # type: ignore[arg-type]
    assert len(it.state.catalog) == len(CATALOG)


def test_a_spot_instance_costs_what_the_market_says_at_each_moment() -> None:
    it = machine()
    running(it, SPOT)
    for at, price in ((30_000, 500_000), (40_000, 500_000), (50_000, 300_000)):
        it.handle([Quoted(((SPOT.id, Price(price)),))], Millis(at))
    # 20 s at the first price, 20 s at the second; it ended before the last change was heard of.
    it.handle([InstanceGone(FIRST, Millis(10_000), Millis(49_000))], Millis(60_000))
    account = it.state.instance_accounts[FIRST]
    assert (account.charged, account.closed) == (400_000 * 20_000 + 500_000 * 19_000, True)
    restored = State.restored(CATALOG, it.take_changes())
    assert restored.instances == it.state.instances


def test_on_demand_instances_keep_their_price() -> None:
    it = machine()
    running(it, ZONES[0])
    it.handle([Quoted(((ZONES[0].id, Price(1)),))], Millis(30_000))
    assert it.state.instances[FIRST].offering == ZONES[0]


def test_policies_see_what_interruptions_cost_and_the_books_do_not() -> None:
    it = machine(checkpoint_ms=0, launch_ms=80_000)
    actions = it.handle([submitted()], Millis(0))
    seen = offering(request(actions).snapshot, SPOT)
    # Once in ten hours 100 s of boot and 80 s of start are lost: 0.5 % of the time.
    assert seen.price == 402_000
    launched(it, actions, SPOT, 1)
    assert it.state.instances[FIRST].offering == SPOT


@pytest.mark.parametrize("policy", ["eva", "no_packing"])
@pytest.mark.parametrize(
    ("price", "life_h", "chosen"),
    [
        (400_000, 168, Purchase.SPOT),
        (999_999, 168, Purchase.ON_DEMAND),
        # An hour of 400 thousandths, and an interruption every minute: 155 s of boot and start.
        (400_000, 1 / 60, Purchase.ON_DEMAND),
    ],
)
def test_price_and_interruptions_decide_between_spot_and_on_demand(
    policy: str, price: int, life_h: float, chosen: Purchase
) -> None:
    rate = round(1_000_000 / life_h)
    spot = replace(SPOT, price=Price(price), interruptions_ppm=rate)
    it = Machine(State((*ZONES, spot)), Settings(round_gap_ms=0))
    picture = request(it.handle([submitted()], Millis(0))).snapshot
    kind = policies()[policy]
    plan, _ = kind.build(kind.config()).plan(picture, None)
    (launch,) = plan.launches
    assert launch.offering.purchase is chosen


def test_an_interruption_stops_the_tasks_at_once_within_the_warning() -> None:
    it = machine()
    running(it, SPOT)
    notice = InstanceInterrupted(FIRST, 2, Millis(80_000), "spot interruption")
    actions = it.handle([notice], Millis(40_000))
    # 60 s of grace would be too long: what is left of 40 s, less the time for the last upload.
    assert StopTask(FIRST, RUN, 1, 25_000) in actions
    passed(it, actions, 41_000)
    actions = it.handle([reported(Phase.EXITED, generation=1)], Millis(50_000))
    assert TerminateInstance(FIRST) in actions
    assert it.state.instances[FIRST].reason == "spot interruption"
    picture = request(actions).snapshot
    assert picture.instances == ()
    assert picture.runs[0].instance is None
    it.handle([InstanceGone(FIRST, Millis(10_000), Millis(60_000))], Millis(60_000))
    assert it.state.market.lives.known == {"c.1": (1, 50_000)}
    assert it.state.jobs[it.state.runs[RUN].job].failures == 0


@pytest.mark.parametrize(
    ("taken", "said", "reason"),
    [
        (True, "no firewall works", "spot interruption"),
        (False, "", "its worker said goodbye"),
        (
            False,
            "no firewall works; boot an image that has nft",
            "its worker said goodbye: no firewall works; boot an image that has nft",
        ),
    ],
)
def test_a_worker_that_says_goodbye_is_gone_for_its_notice_or_for_what_it_says(
    taken: bool, said: str, reason: str
) -> None:
    it = machine()
    running(it, SPOT)
    notice = InstanceInterrupted(FIRST, 2, Millis(80_000), "spot interruption")
    ended = WorkerReported(FIRST, 2, (RunReport(RUN, 1, Phase.EXITED, stopped=True),))
    lost = WorkerLost(FIRST, 2, goodbye=True, reason=said)
    heard = [*([notice] if taken else []), ended, lost]
    assert TerminateInstance(FIRST) in it.handle(heard, Millis(40_000))
    assert it.state.instances[FIRST].reason == reason


def test_a_restarted_worker_that_lets_no_task_run_says_why_in_events_and_lists() -> None:
    it = machine(feed=True)
    running(it, SPOT)
    unfit = "tasks would reach the metadata service; boot an image that has nft"
    ran = RunReport(RUN, 1, Phase.RUNNING)
    it.handle([WorkerRegistered(FIRST, 3, SIZE, (ran,), unfit=unfit)], Millis(40_000))
    ended = WorkerReported(FIRST, 3, (RunReport(RUN, 1, Phase.EXITED, stopped=True),))
    lost = WorkerLost(FIRST, 3, goodbye=True, reason=unfit)
    assert TerminateInstance(FIRST) in it.handle([ended, lost], Millis(41_000))
    assert it.state.instances[FIRST].reason == f"its worker said goodbye: {unfit}"
    it.handle([InstanceGone(FIRST, Millis(10_000), Millis(60_000))], Millis(60_000))
    assert f"gone: its worker said goodbye: {unfit}" in [
        event.text for event in it.take_changes().feed
    ]


@pytest.mark.parametrize("session", [1, 3])
def test_news_of_another_session_is_no_news(session: int) -> None:
    it = machine()
    running(it, SPOT)
    it.handle([InstanceInterrupted(FIRST, session, Millis(80_000), "x")], Millis(40_000))
    assert it.state.instances[FIRST].leaving_ms is None


def test_a_recommendation_to_leave_is_written_down_at_least() -> None:
    it = machine(rebalance_ms=0)
    running(it, SPOT)
    it.handle([InstanceInterrupted(FIRST, 2, None, "rebalance")], Millis(40_000))
    instance = it.state.instances[FIRST]
    assert (instance.reason, instance.leaving_ms) == ("rebalance", None)
    assert it.state.runs[RUN].state is RunState.RUNNING


RISK = InstanceInterrupted(FIRST, 2, None, "rebalance recommendation")


def stops(actions: list[Action]) -> list[StopTask]:
    return [it for it in actions if isinstance(it, StopTask)]


def at_risk(it: Machine) -> list[Action]:
    """Have the job's instance be one that the cloud recommends to leave, in second 40."""
    running(it, SPOT)
    return it.handle([RISK], Millis(40_000))


def test_an_instance_at_risk_is_left_when_there_is_another_place() -> None:
    it = machine(rebalance_ms=900_000)
    actions = at_risk(it)
    picture = request(actions).snapshot
    assert (picture.instances, picture.runs[0].instance) == ((), None)
    assert not offering(picture, SPOT).available(Millis(939_999))
    assert offering(picture, SPOT).available(Millis(940_000))
    # It is said again in each session of its worker.
    assert not it.handle([RISK], Millis(41_000))

    actions += launched(it, actions, ZONES[0], 42_000)
    actions += it.handle([InstanceUp(SECOND, Millis(50_000))], Millis(50_000))
    fetching = it.handle([WorkerRegistered(SECOND, 1, SIZE, ())], Millis(60_000))
    assert any(isinstance(action, FetchFiles) for action in fetching)
    assert stops(actions + fetching) == []
    moving = it.handle([WorkerFetched(SECOND, 1, RUN)], Millis(70_000))
    assert stops(moving) == [StopTask(FIRST, RUN, 1, 60_000)]
    moved = it.handle([reported(Phase.EXITED, generation=1)], Millis(75_000))
    assert TerminateInstance(FIRST) in moved
    assert any(isinstance(action, StartTask) for action in moved)
    assert it.state.instances[FIRST].reason == "rebalance recommendation"
    # Leaving costs what an interruption does.
    it.handle([InstanceGone(FIRST, Millis(10_000), Millis(80_000))], Millis(80_000))
    assert it.state.market.lives.known == {"c.1": (1, 70_000)}


def test_on_an_instance_at_risk_a_task_runs_on_while_there_is_no_other_place() -> None:
    it = machine(rebalance_ms=900_000)
    launched(it, at_risk(it), ZONES[0], 42_000)
    refused = LaunchFailed(SECOND, Millis(200_000), "no capacity")
    actions = it.handle([refused], Millis(43_000))
    assert stops(actions) == []
    passed(it, actions, 44_000)
    run = it.state.runs[RUN]
    assert (run.state, run.instance, run.target) == (RunState.RUNNING, FIRST, FIRST)
    # When the cloud does take it, it is left at once.
    notice = InstanceInterrupted(FIRST, 2, Millis(170_000), "spot interruption")
    assert stops(it.handle([notice], Millis(50_000))) == [StopTask(FIRST, RUN, 1, 60_000)]


def test_who_waits_for_another_place_stops_when_the_cloud_does_take_the_instance() -> None:
    it = machine(rebalance_ms=900_000)
    launched(it, at_risk(it), ZONES[0], 42_000)
    assert it.state.runs[RUN].target == SECOND  # which boots
    notice = InstanceInterrupted(FIRST, 2, Millis(170_000), "spot interruption")
    assert stops(it.handle([notice], Millis(50_000))) == [StopTask(FIRST, RUN, 1, 60_000)]
    it.handle([reported(Phase.EXITED, generation=1)], Millis(75_000))
    run = it.state.runs[RUN]
    assert (run.state, run.instance, run.target) == (RunState.WAITING, None, SECOND)


def test_an_instance_at_risk_is_given_no_more_tasks() -> None:
    it = machine(rebalance_ms=900_000)
    actions = at_risk(it)
    plan = Plan((), (Assign(RUN, FIRST),))
    it.handle([PlanReady(request(actions).round, plan, None)], Millis(42_000))
    restored = Machine(State.restored(CATALOG, it.take_changes()), it.settings)
    again = request(restored.recover(Millis(43_000))).snapshot
    assert (again.instances, again.runs[0].instance) == ((), None)
    # A task that fails there goes on elsewhere.
    failed = RunReport(RUN, 1, Phase.EXITED, exit_code=1)
    it.handle([WorkerRegistered(FIRST, 3, SIZE, (failed,))], Millis(50_000))
    assert it.state.runs[RUN].target is None


def test_ends_that_were_asked_for_are_no_interruptions() -> None:
    it = machine()
    running(it, SPOT)
    it.handle([reported(Phase.EXITED, exit_code=0)], Millis(50_000))
    it.handle([Tick()], Millis(70_000))  # A new one would be there by now, as the first was.
    assert it.state.instances[FIRST].state is InstanceState.TERMINATING
    gone = InstanceGone(FIRST, Millis(10_000), Millis(80_000), "Client.UserInitiatedShutdown")
    it.handle([gone], Millis(80_000))
    assert it.state.market.lives.known == {"c.1": (0, 70_000)}
    assert it.state.instances[FIRST].reason == "empty"
    restored = State.restored(CATALOG, it.take_changes())
    assert restored.market == it.state.market


def test_an_end_without_notice_is_an_interruption() -> None:
    it = machine()
    running(it, SPOT)
    gone = InstanceGone(FIRST, Millis(10_000), Millis(60_000), "Server.SpotInstanceTermination")
    it.handle([gone], Millis(60_000))
    assert it.state.market.lives.known == {"c.1": (1, 50_000)}
    assert it.state.instances[FIRST].reason == "Server.SpotInstanceTermination"


def test_the_rate_of_interruptions_is_learned() -> None:
    lives = Interruptions()
    assert lives.rate_ppm("c.1", 100_000) == 100_000
    assert lives.seen("c.1", HOUR_MS, interrupted=True).rate_ppm("c.1", 0) == 0
    # One was expected in ten hours; in ten hours there were three.
    for _ in range(3):
        lives = lives.seen("c.1", 10 * HOUR_MS // 3, interrupted=True)
    assert lives.rate_ppm("c.1", 100_000) == pytest.approx(200_000, rel=1e-4)
    assert lives.rate_ppm("c.2", 100_000) == 100_000
    assert Interruptions.from_json(lives.to_json()) == lives
    calm = replace(lives, known={}).seen("c.1", 90 * HOUR_MS, interrupted=False)
    assert calm.rate_ppm("c.1", 100_000) == 10_000
