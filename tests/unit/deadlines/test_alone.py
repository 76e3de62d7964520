"""Nobody comes to where a job is that would be late in company."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.context import Context
from eva_master.control.features.deadlines import market_choice
from eva_master.control.features.deadlines.slack import Slack, slack, slack_alone_ms
from eva_master.control.machine import Machine
from eva_master.control.measure import remaining
from eva_master.control.state.store import State
from eva_master.model.actions import RequestPlan
from eva_master.model.catalog import is_spot
from eva_master.model.events import (
    Event,
    InstanceGone,
    InstanceUp,
    LaunchFailed,
    Phase,
    PlanReady,
    RunReport,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.records import Job
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, Millis, RunId
from eva_wire.values.states import MarketRule, RunState
from tests.unit.control.test_control_cloud import (
    CATALOG,
    FIRST,
    SECOND,
    SIZE,
    SPOT,
    ZONES,
    launched,
    reported,
    request,
)
from tests.unit.deadlines.test_market_choice import HOUR, JOB, another, machine, within

ROOMY = Resources(0, 2_000, 2_048)
"""Twice what a task needs."""
LARGE = replace(ZONES[0], type=replace(ZONES[0].type, name="c.2", capacity=ROOMY))
NOW = 1_000
RUNS = tuple(RunId(f"{JOB}/{index}") for index in range(3))
NEIGHBOUR = RunId("second-2/0")
FARTHER = RunId("third-3/0")
THIRD = InstanceId("i00003")


def told(it: Machine, event: Event, at: int) -> None:
    """Hand an event over, whose plans change nothing."""
    for action in it.handle([event], Millis(at)):
        if isinstance(action, RequestPlan):
            it.handle([PlanReady(action.round, Plan(), None)], Millis(at))


def seen(it: Machine, at: int) -> Snapshot:
    """What a policy is shown when one more job has come."""
    asked = request(it.handle([another(f"at-{at}")], Millis(at)))
    it.handle([PlanReady(asked.round, Plan(), None)], Millis(at))
    return asked.snapshot


def gang_of_three() -> Machine:
    """Two of it start on one instance and the third on another, with room for somebody else."""
    it = Machine(State((*CATALOG, LARGE)), machine().settings)
    event = within(2.2)
    event = replace(event, spec=replace(event.spec, tasks=event.spec.tasks * 3))
    asked = request(it.handle([event], Millis(0)))
    places = zip(RUNS, (0, 0, 1), strict=True)
    entries = tuple(Assign(run, place) for run, place in places)
    new = (NewInstance(0, LARGE), NewInstance(1, LARGE))
    it.handle([PlanReady(asked.round, Plan(new, entries), None)], Millis(1))
    for name in (FIRST, SECOND):
        told(it, InstanceUp(name, Millis(2)), 2)
        told(it, WorkerRegistered(name, 1, ROOMY, ()), 3)
    return it


def runs_now(it: Machine, *beside: RunId) -> None:
    """The three run, and others beside the third."""
    for name, runs in ((FIRST, RUNS[:2]), (SECOND, RUNS[2:] + beside)):
        reports = tuple(RunReport(run, 1, Phase.RUNNING) for run in runs)
        told(it, WorkerReported(name, 1, reports), NOW)


@pytest.fixture(name="bought", params=[MarketRule.STAYS])
def _bought(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MarketRule:
    """What is bought for jobs with deadlines, from now on: they have no time to lose."""
    buys: MarketRule = request.param

    def found(context: Context, job: Job) -> market_choice._Found:
        return market_choice._Found(MarketRule.ANY if context.now < NOW else buys)

    monkeypatch.setattr(market_choice, "_in_time", found)
    return buys


def places(it: Machine, at: int) -> dict[RunId, tuple[InstanceId | None, bool, Resources | None]]:
    """Where the gang is shown to be, whether it may be moved, and what each of it takes there."""
    family = LARGE.type.family
    views = {view.id: view for view in seen(it, at).runs if view.job == JOB}
    return {
        run: (view.instance, view.pinned, view.task.demand_on(family))
        for run, view in views.items()
    }


@pytest.mark.usefixtures("bought")
def test_all_room_where_it_is_alone_is_taken() -> None:
    it = gang_of_three()
    runs_now(it)
    need = it.state.jobs[JOB].spec.tasks[0].demand_on(LARGE.type.family)
    assert places(it, NOW + 1) == {
        RUNS[0]: (FIRST, True, need),
        RUNS[1]: (FIRST, True, need),
        RUNS[2]: (SECOND, True, ROOMY),
    }


@pytest.mark.usefixtures("bought")
def test_two_that_are_to_be_alone_on_one_instance_take_its_room_once() -> None:
    capacity = Resources(0, 4_000, 8_192)
    huge = replace(LARGE, type=replace(LARGE.type, name="c.4", capacity=capacity))
    it = Machine(State((*CATALOG, huge)), machine().settings)
    second = replace(within(3), command="second")
    second = replace(second, spec=replace(second.spec, name="second"))
    for event, run, where in ((within(3), RUNS[0], 0), (second, NEIGHBOUR, FIRST)):
        asked = request(it.handle([event], Millis(0)))
        new = (NewInstance(0, huge),) if where == 0 else ()
        it.handle([PlanReady(asked.round, Plan(new, (Assign(run, where),)), None)], Millis(0))
    told(it, InstanceUp(FIRST, Millis(2)), 2)
    told(it, WorkerRegistered(FIRST, 1, capacity, ()), 3)
    reports = tuple(RunReport(run, 1, Phase.RUNNING) for run in (RUNS[0], NEIGHBOUR))
    told(it, WorkerReported(FIRST, 1, reports), NOW)

    def taken(at: int) -> Resources:
        views = [view for view in seen(it, at).runs if view.instance == FIRST]
        assert len(views) == 2
        needs = (view.task.demand_on(huge.type.family) for view in views)
        return sum((it for it in needs if it is not None), Resources())

    assert taken(NOW + 1) == capacity
    # The first had time to lose and has none again: so it is the first once more.
    own = it.state.jobs[JOB]
    it.state.put_job(replace(own, buys=MarketRule.ON_DEMAND))
    assert taken(NOW + 2) == capacity
    it.state.put_job(own)
    assert taken(NOW + 3) == capacity


@pytest.mark.parametrize("bought", [MarketRule.ALONE, MarketRule.STAYS], indirect=True)
def test_it_or_who_is_beside_it_leaves_while_it_has_time_for_that(bought: MarketRule) -> None:
    it = gang_of_three()
    asked = request(it.handle([another()], Millis(5)))
    it.handle([PlanReady(asked.round, Plan((), (Assign(NEIGHBOUR, SECOND),)), None)], Millis(6))
    runs_now(it, NEIGHBOUR)
    assert {pinned for _, pinned, _ in places(it, NOW + 1).values()} == {bought is MarketRule.STAYS}
    asked = request(it.handle([another("third")], Millis(NOW + 2)))
    leaves = Plan((NewInstance(0, ZONES[0]),), (Assign(NEIGHBOUR, 0),))
    it.handle([PlanReady(asked.round, leaves, None)], Millis(NOW + 2))
    assert it.state.runs[NEIGHBOUR].target not in (None, SECOND)
    found = places(it, NOW + 3)
    assert {pinned for _, pinned, _ in found.values()} == {bought is MarketRule.STAYS}
    assert (found[RUNS[2]][2] == ROOMY) is (bought is MarketRule.STAYS)


def offered(picture: Snapshot) -> dict[RunId, bool]:
    """Who is offered spot instances, of those without a deadline that have a place."""
    views = (view for view in picture.runs if view.instance and view.job != JOB)
    return {view.id: any(is_spot(family) for family, _ in view.task.demand) for view in views}


@pytest.mark.parametrize("own", [MarketRule.ANY, MarketRule.APART])
@pytest.mark.parametrize("kind", list(JobKind))
def test_who_is_beside_it_makes_room_only_where_no_spot_launch_is_waited_for(
    kind: JobKind, own: MarketRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also who is to go apart itself."""
    kept = {"buys": MarketRule.ANY}
    monkeypatch.setattr(market_choice, "_in_time", lambda *_: market_choice._Found(kept["buys"]))
    it = alone_beside_a_neighbour(kind)
    it.state.put_job(replace(it.state.jobs[it.state.runs[NEIGHBOUR].job], buys=own))
    assert offered(seen(it, NOW + 1)) == {NEIGHBOUR: True, FARTHER: True}
    turns = [
        MarketRule.ALONE,
        MarketRule.ON_DEMAND,
        MarketRule.STAYS,
        MarketRule.APART,
        MarketRule.ALONE,
    ]
    for at, buys in enumerate(turns, 10):
        kept["buys"] = buys
        it._context.touch_job(JOB)
        urgent = buys in (MarketRule.ALONE, MarketRule.STAYS)
        assert offered(seen(it, NOW + at)) == {NEIGHBOUR: not urgent, FARTHER: True}
    # Once it has gone elsewhere, nobody waits for room any more.
    leaves = Plan((NewInstance(0, LARGE),), (Assign(RUNS[0], 0),))
    asked = request(it.handle([another("last")], Millis(NOW + 50)))
    assert offered(asked.snapshot) == {NEIGHBOUR: False, FARTHER: True}
    it.handle([PlanReady(asked.round, leaves, None)], Millis(NOW + 50))
    assert offered(seen(it, NOW + 51)) == {NEIGHBOUR: True, FARTHER: True}


@pytest.mark.usefixtures("bought")
def test_a_plan_that_was_begun_before_brings_nobody() -> None:
    it = gang_of_three()
    asked = request(it.handle([another()], Millis(5)))
    alone = Plan((NewInstance(0, ZONES[0]),), (Assign(NEIGHBOUR, 0),))
    it.handle([PlanReady(asked.round, alone, None)], Millis(6))
    told(it, InstanceUp(THIRD, Millis(7)), 7)
    told(it, WorkerRegistered(THIRD, 1, ZONES[0].type.capacity, ()), 8)
    told(it, WorkerReported(THIRD, 1, (RunReport(NEIGHBOUR, 1, Phase.RUNNING),)), 9)
    asked = request(it.handle([another("third")], Millis(10)))
    runs_now(it)
    joins = Plan((), (Assign(NEIGHBOUR, SECOND),))
    it.handle([PlanReady(asked.round, joins, None)], Millis(NOW + 1))
    assert it.state.runs[NEIGHBOUR].target == THIRD


def alone_beside_a_neighbour(kind: JobKind = JobKind.GANG) -> Machine:
    """A job runs beside another, and a third by itself, when it has no time left to lose."""
    it = Machine(State((*CATALOG, LARGE)), machine().settings)
    placed = (
        (within(2.2), RUNS[0], 0, FIRST),
        (another(), NEIGHBOUR, FIRST, FIRST),
        (another("third"), FARTHER, 0, SECOND),
    )
    for event, run, where, _ in placed:
        spec = event.spec if run is RUNS[0] else replace(event.spec, kind=kind)
        asked = request(it.handle([replace(event, spec=spec)], Millis(0)))
        new = (NewInstance(0, LARGE),) if where == 0 else ()
        it.handle([PlanReady(asked.round, Plan(new, (Assign(run, where),)), None)], Millis(0))
    for name in (FIRST, SECOND):
        told(it, InstanceUp(name, Millis(2)), 2)
        told(it, WorkerRegistered(name, 1, ROOMY, ()), 3)
    for name in (FIRST, SECOND):
        there = (run for _, run, _, place in placed if place == name)
        reports = tuple(RunReport(run, 1, Phase.RUNNING) for run in there)
        told(it, WorkerReported(name, 1, reports), NOW)
    return it


@pytest.mark.parametrize("bought", list(MarketRule), indirect=True)
@pytest.mark.parametrize("kept", [False, True])
def test_nobody_with_time_to_lose_starts_beside_it(bought: MarketRule, kept: bool) -> None:
    """They were to share an instance that is launched, when one of them is to be alone."""
    it = Machine(State((*CATALOG, LARGE)), machine().settings)
    for event, run, where in ((within(9), RUNS[0], 0), (another(), NEIGHBOUR, FIRST)):
        asked = request(it.handle([event], Millis(0)))
        new = (NewInstance(0, LARGE),) if where == 0 else ()
        it.handle([PlanReady(asked.round, Plan(new, (Assign(run, where),)), None)], Millis(1))
    if kept:
        neighbour = it.state.jobs[it.state.runs[NEIGHBOUR].job]
        it.state.put_job(replace(neighbour, buys=MarketRule.ON_DEMAND))
    it._context.touch_job(JOB)
    told(it, InstanceUp(FIRST, Millis(2)), NOW)
    assert it.state.jobs[JOB].buys is bought
    turns = bought in (MarketRule.ALONE, MarketRule.STAYS) and not kept
    assert it.state.runs[NEIGHBOUR].target == (None if turns else FIRST)
    assert it.state.runs[RUNS[0]].target == FIRST
    # Both take all room there, or it alone does: nobody is given a place beside it.
    views = [view for view in seen(it, NOW + 1).runs if view.instance == FIRST]
    needs = (view.task.demand_on(LARGE.type.family) for view in views)
    assert sum((need for need in needs if need), Resources()) == ROOMY


def planned(it: Machine, plan: Plan, at: int) -> None:
    """Have such a plan made when one more job has come."""
    asked = request(it.handle([another(f"at-{at}")], Millis(at)))
    it.handle([PlanReady(asked.round, plan, None)], Millis(at))


@pytest.mark.usefixtures("bought")
@pytest.mark.parametrize("bought", [MarketRule.ALONE], indirect=True)
def test_it_does_not_stop_to_be_in_company_elsewhere() -> None:
    it = alone_beside_a_neighbour()
    planned(it, Plan((), (Assign(RUNS[0], SECOND),)), NOW + 1)
    assert it.state.runs[RUNS[0]].target == FIRST
    # Who is there is to go to a spot instance, which is refused.
    swap = Plan((NewInstance(0, SPOT),), (Assign(FARTHER, 0), Assign(RUNS[0], SECOND)))
    planned(it, swap, NOW + 2)
    assert (it.state.runs[FARTHER].target, it.state.runs[RUNS[0]].target) == (THIRD, SECOND)
    it.handle([LaunchFailed(THIRD, Millis(NOW + 3), "none left")], Millis(NOW + 4))
    assert (it.state.runs[FARTHER].target, it.state.runs[RUNS[0]].target) == (SECOND, FIRST)


def crowded_out(
    monkeypatch: pytest.MonkeyPatch, rule: SpotChoice, slack_ms: int = -HOUR
) -> Machine:
    """A job that runs on demand, and whose company costs it an hour and more."""
    it = Machine(State(CATALOG), replace(machine().settings, spot_choice=rule))
    launched(it, it.handle([within(9)], Millis(0)), ZONES[0], 1)
    it.handle([InstanceUp(FIRST, Millis(2))], Millis(2))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(3))
    it.handle([reported(Phase.RUNNING)], Millis(4))
    stands = Slack(left_ms=4 * HOUR, slack_ms=slack_ms, reserve_ms=300_000, change_ms=200_000)
    monkeypatch.setattr(market_choice, "slack", lambda *_: stands)
    monkeypatch.setattr(market_choice, "slack_alone_ms", lambda *_: HOUR)
    return it


def looked_at(it: Machine, at: int) -> tuple[MarketRule, bool, set[bool]]:
    """What is bought for the job, whether it is alone, and whether it is offered spot instances."""
    it._context.touch_job(JOB)
    (view,) = (view for view in seen(it, at).runs if view.job == JOB)
    offered = {is_spot(family) for family, _ in view.task.demand}
    return it.state.jobs[JOB].buys, view.alone, offered


def test_whom_company_alone_would_make_late_may_be_on_spot_instances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = crowded_out(monkeypatch, SpotChoice.LEARNED)
    assert looked_at(it, 10) == (MarketRule.APART, True, {False, True})
    # Alone it has time to lose again: it does not come back to company for that.
    ample = Slack(left_ms=3 * HOUR, slack_ms=HOUR, reserve_ms=300_000, change_ms=200_000)
    monkeypatch.setattr(market_choice, "slack", lambda *_: ample)
    assert looked_at(it, 20) == (MarketRule.APART, True, {False, True})
    # Nor does it meet other company while it moves, or starts anew where it is.
    it.handle([WorkerRegistered(FIRST, 3, SIZE, ())], Millis(30))
    assert it.state.runs[RUNS[0]].state is RunState.STOPPING
    assert looked_at(it, 31) == (MarketRule.APART, True, {False, True})
    it.handle([InstanceGone(FIRST, Millis(2), Millis(40))], Millis(40))
    assert it.state.jobs[JOB].buys is MarketRule.ANY


def test_by_a_rule_that_has_all_on_demand_it_is_alone_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = crowded_out(monkeypatch, SpotChoice.ON_DEMAND)
    assert looked_at(it, 10) == (MarketRule.ALONE, True, {False})


def test_what_company_costs_is_no_loss_of_time_once_it_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = machine()
    it.handle([within(9)], Millis(0))

    def left(*_: object, alone: bool = False) -> int:
        return 2 * HOUR if alone else 3 * HOUR

    monkeypatch.setattr(remaining, "left_ms", left)
    about = it.state, it.state.jobs[JOB], Millis(1)
    stands = slack(*about, it.settings)
    assert stands is not None
    assert slack_alone_ms(*about, stands) == stands.slack_ms + HOUR
