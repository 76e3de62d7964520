"""What becomes of tasks whose new places the cloud refuses, and of who was to follow them."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, FetchFiles, RequestPlan
from eva_master.model.catalog import Offering
from eva_master.model.events import (
    InstanceUp,
    JobSubmitted,
    LaunchFailed,
    Phase,
    PlanReady,
    RunReport,
    Tick,
    WorkerRegistered,
)
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_wire.values.ids import InstanceId, Millis, RunId
from tests.unit.control.test_control_cloud import (
    CATALOG,
    FIRST,
    REGISTER_MS,
    RUN,
    SECOND,
    SIZE,
    SPOT,
    ZONES,
    launched,
    machine,
    passed,
    request,
    running,
    submitted,
)

FOLLOWER = RunId("second-2/0")
GAP_MS = 300_000
NONE_LEFT = LaunchFailed(SECOND, Millis(200_000), "none left")


def another(command: str) -> JobSubmitted:
    """A job like the first one."""
    first = submitted()
    return replace(first, command=command, spec=replace(first.spec, name=command))


def moving(it: Machine, to: Offering) -> list[Action]:
    """Have the job, which runs on the first instance, move to a new one, and another replace it."""
    running(it, ZONES[0])
    asked = request(it.handle([another("second")], Millis(30_000)))
    offering = next(one for one in asked.snapshot.catalog if one.id == to.id)
    plan = Plan((NewInstance(0, offering),), (Assign(RUN, 0), Assign(FOLLOWER, FIRST)))
    return it.handle([PlanReady(asked.round, plan, None)], Millis(31_000))


def targets(it: Machine) -> tuple[object, object]:
    return it.state.runs[RUN].target, it.state.runs[FOLLOWER].target


def test_nobody_waits_for_the_room_of_who_stays_after_all() -> None:
    it = machine()
    moving(it, ZONES[1])
    assert targets(it) == (SECOND, FIRST)
    actions = it.handle([NONE_LEFT], Millis(32_000))
    assert targets(it) == (FIRST, None)
    views = {view.id: view.instance for view in request(actions).snapshot.runs}
    assert views == {RUN: FIRST, FOLLOWER: None}


def fetches(actions: list[Action]) -> list[tuple[RunId, InstanceId]]:
    return [(one.order.run, one.instance) for one in actions if isinstance(one, FetchFiles)]


def planned(it: Machine, actions: list[Action], at: int, *entries: Assign) -> list[Action]:
    """Answer a request for a plan, which launches an instance for whoever is assigned to 0."""
    asked = request(actions)
    launches = (NewInstance(0, asked.snapshot.catalog[0]),)
    return it.handle([PlanReady(asked.round, Plan(launches, entries), None)], Millis(at))


def test_who_comes_back_to_a_place_has_its_files_fetched_again() -> None:
    it = machine(worker_resend_ms=10**9)
    running(it, ZONES[0])
    planned(it, it.handle([another("second")], Millis(30_000)), 31_000, Assign(FOLLOWER, 0))
    it.handle([InstanceUp(SECOND, Millis(40_000))], Millis(40_000))
    it.handle([WorkerRegistered(SECOND, 1, SIZE, ())], Millis(50_000))
    runs = WorkerRegistered(SECOND, 2, SIZE, (RunReport(FOLLOWER, 1, Phase.RUNNING),))
    it.handle([runs], Millis(51_000))
    # The first is to have a new instance, and the second the first one's: twice it is refused.
    both = (Assign(RUN, 0), Assign(FOLLOWER, FIRST))
    actions = it.handle([another("third")], Millis(60_000))
    for number, at in ((3, 61_000), (4, 300_000)):
        actions = planned(it, actions, at, *both)
        assert fetches(actions) == [(FOLLOWER, FIRST)]
        refused = LaunchFailed(InstanceId(f"i{number:05}"), Millis(at + 100_000), "none left")
        actions = it.handle([refused], Millis(at + 1_000))
        assert targets(it) == (FIRST, SECOND)
        passed(it, actions, at + 2_000)
        actions = it.handle([Tick()], Millis(at + 100_000))


def test_a_round_goes_on_after_a_refused_spot_launch() -> None:
    it = Machine(State(CATALOG), Settings(round_gap_ms=GAP_MS, register_timeout_ms=REGISTER_MS))
    launched(it, it.handle([submitted()], Millis(0)), SPOT, 1_000)
    refused = LaunchFailed(FIRST, Millis(200_000), "none left")
    again = it.handle([refused], Millis(2_000))
    assert not any(one.available(Millis(2_000)) for one in request(again).snapshot.catalog[2:])
    launched(it, again, ZONES[0], 3_000)
    # What follows is another round.
    later = it.handle([another("second")], Millis(4_000))
    assert not any(isinstance(one, RequestPlan) for one in later)
    assert request(it.handle([Tick()], Millis(2_000 + GAP_MS)))


def test_a_round_ends_with_a_refused_launch_on_demand() -> None:
    it = Machine(State(CATALOG), Settings(round_gap_ms=GAP_MS, register_timeout_ms=REGISTER_MS))
    launched(it, it.handle([submitted()], Millis(0)), ZONES[0], 1_000)
    refused = LaunchFailed(FIRST, Millis(200_000), "none left")
    assert not any(isinstance(one, RequestPlan) for one in it.handle([refused], Millis(2_000)))
    passed(it, it.handle([Tick()], Millis(GAP_MS)), GAP_MS)


def test_pauses_between_tries_grow_while_a_pool_refuses() -> None:
    it = machine()
    actions, now, pauses = it.handle([submitted()], Millis(0)), 0, []
    for number in range(1, 7):
        launched(it, actions, SPOT, now)
        refused = LaunchFailed(InstanceId(f"i{number:05}"), Millis(now + 1_000), "none left")
        passed(it, it.handle([refused], Millis(now)), now)
        until = it.state.catalog[2].unavailable_until
        assert until is not None
        pauses.append(until - now)
        now = until
        actions = it.handle([Tick()], Millis(now))
    assert pauses == [60_000, 120_000, 240_000, 480_000, 600_000, 600_000]
    # They go on where they were after a restart.
    restored = Machine(State.restored(CATALOG, it.take_changes()), it.settings)
    launched(restored, restored.recover(Millis(now)), SPOT, now)
    restored.handle([LaunchFailed(InstanceId("i00007"), Millis(now), "none left")], Millis(now))
    assert restored.state.catalog[2].unavailable_until == now + 600_000
