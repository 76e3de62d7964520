"""When the machine asks for plans."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, RequestPlan
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import JobSubmitted, PlanFailed, PlanReady, Tick
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, Millis, Price, Workload

PERIOD_MS = 300_000
SETTINGS = Settings(round_gap_ms=1_000, round_period_ms=PERIOD_MS)
OFFERING = Offering(InstanceType("c.1", Family("c"), Resources(0, 1000, 1024)), Price(1))


def _submitted(number: int) -> JobSubmitted:
    demand = ((Family("c"), Resources(0, 500, 512)),)
    task = TaskSpec(Workload("w"), Program("true"), demand)
    return JobSubmitted(f"command-{number}", JobSpec(f"job{number}", "me", (task,)))


def _rounds(actions: list[Action]) -> list[int]:
    return [action.round for action in actions if isinstance(action, RequestPlan)]


def _answered(machine: Machine, actions: list[Action], now: Millis) -> list[int]:
    """Answer every request by an empty plan; the rounds that were asked for."""
    rounds = _rounds(actions)
    for number in rounds:
        assert not _rounds(machine.handle([PlanReady(number, Plan(), None)], now))
    return rounds


def test_a_quiet_cluster_has_one_round_per_period_however_many_it_had_before() -> None:
    machine = Machine(State((OFFERING,)), SETTINGS)
    for number in range(10):
        now = Millis(number * 2_000)
        assert _answered(machine, machine.handle([_submitted(number)], now), now)
    last = Millis(18_000)
    asked: list[Millis] = []
    while (now := machine.next_alarm() or Millis(0)) <= last + 3 * PERIOD_MS:
        asked += [now] * len(_answered(machine, machine.handle([Tick()], now), now))
    assert asked == [last + PERIOD_MS * n for n in (1, 2, 3)]


def _settled() -> tuple[Machine, Millis]:
    """One task with a place on an instance that is still coming up, and nothing to be said."""
    machine = Machine(State((OFFERING,)), replace(SETTINGS, sync_period_ms=100 * PERIOD_MS))
    now = Millis(0)
    (number,) = _rounds(machine.handle([_submitted(1)], now))
    (run,) = machine.state.runs
    plan = Plan((NewInstance(0, OFFERING),), (Assign(run, 0),))
    machine.handle([PlanReady(number, plan, None)], now)
    # The place that it has got is news, once.
    now = Millis(now + PERIOD_MS)
    assert _answered(machine, machine.handle([Tick()], now), now)
    return machine, now


def test_a_round_in_which_nothing_has_changed_is_not_held() -> None:
    machine, now = _settled()
    made = machine.state.view_cache.made
    for _ in range(5):
        now = Millis(now + PERIOD_MS)
        assert not _rounds(machine.handle([Tick()], now))
    assert machine.state.view_cache.made == made, "nothing was pictured anew"
    assert _rounds(machine.handle([_submitted(2)], now))


def test_what_is_out_of_stock_is_news_and_so_is_its_return() -> None:
    machine, now = _settled()
    back = Millis(now + PERIOD_MS + PERIOD_MS // 2)
    machine.state.set_unavailable([OFFERING.id], back, "no capacity")
    now = Millis(now + PERIOD_MS)
    assert _answered(machine, machine.handle([Tick()], now), now), "out of stock"
    now = Millis(now + PERIOD_MS)
    assert _answered(machine, machine.handle([Tick()], now), now), "on sale again"
    now = Millis(now + PERIOD_MS)
    assert not _rounds(machine.handle([Tick()], now))


def test_a_plan_that_failed_is_asked_for_again_though_nothing_has_changed() -> None:
    machine, now = _settled()
    machine.state.set_unavailable([OFFERING.id], Millis(1 << 50), "no capacity")
    now = Millis(now + PERIOD_MS)
    (number,) = _rounds(machine.handle([Tick()], now))
    machine.handle([PlanFailed(number, "it broke down")], now)
    now = Millis(now + SETTINGS.round_gap_ms)
    assert _rounds(machine.handle([Tick()], now))
