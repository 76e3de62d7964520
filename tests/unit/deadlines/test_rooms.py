"""Nobody waits for a spot instance who has room on an instance that is there anyway."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.features.deadlines.choosing import has_room
from eva_master.control.features.deadlines.memory import DeadlineMemory
from eva_master.control.machine import Machine
from eva_master.model.catalog import Offering, spot_family
from eva_master.model.events import JobSubmitted, LaunchFailed, PlanReady
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.resources import Resources
from eva_wire.values.ids import JobId, Millis, RunId
from eva_wire.values.states import MarketRule
from tests.unit.control.test_control_cloud import (
    SECOND,
    SIZE,
    SPOT,
    ZONES,
    C,
    request,
    running,
)
from tests.unit.deadlines.test_market_choice import machine, within

LATER = JobId("later-2")


def sized(event: JobSubmitted, part: float) -> JobSubmitted:
    """A job that needs a part of an instance."""
    need = Resources(0, round(SIZE.milli_cpus * part), round(SIZE.memory_mib * part))
    (task,) = event.spec.tasks
    small = replace(task, demand=((C, need), (spot_family(C), need)))
    spec = replace(event.spec, name="later", tasks=(small,))
    return replace(event, command="later", spec=spec)


def waits(on: Offering, part: float) -> Machine:
    """A job fills an instance; another one comes, whose spot instance is refused."""
    it = machine()
    running(it, on)
    actions = it.handle([sized(within(12), part)], Millis(30_000))
    plan = Plan((NewInstance(0, SPOT),), (Assign(RunId(f"{LATER}/0"), 0),))
    it.handle([PlanReady(request(actions).round, plan, None)], Millis(30_001))
    it.handle([LaunchFailed(SECOND, Millis(30_002), "none left")], Millis(30_002))
    return it


@pytest.mark.parametrize(
    ("on", "free", "buys"),
    [
        (ZONES[0], False, MarketRule.SPOT),
        (ZONES[0], True, MarketRule.ANY),
        (SPOT, True, MarketRule.SPOT),
    ],
)
def test_room_beside_others_is_used(
    on: Offering, free: bool, buys: MarketRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    if free:
        # The first job takes half of what there is.
        half = Resources(0, SIZE.milli_cpus // 2, SIZE.memory_mib // 2)
        monkeypatch.setattr("tests.unit.control.test_control_cloud.submitted", lambda: _half(half))
    it = waits(on, 0.5)
    assert it.state.jobs[LATER].buys is buys
    assert has_room(it._context, it.state.jobs[LATER]) is (buys is MarketRule.ANY)


def _half(need: Resources) -> JobSubmitted:
    event = within(1_000)
    (task,) = event.spec.tasks
    small = replace(task, demand=((C, need), (spot_family(C), need)))
    return replace(event, spec=replace(event.spec, deadline=None, tasks=(small,)))


def test_who_is_alone_shares_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    half = Resources(0, SIZE.milli_cpus // 2, SIZE.memory_mib // 2)
    monkeypatch.setattr("tests.unit.control.test_control_cloud.submitted", lambda: _half(half))
    it = waits(ZONES[0], 0.5)
    first = JobId("job-1")
    it._context.put_job(replace(it.state.jobs[first], buys=MarketRule.ALONE))
    it._context.memory(DeadlineMemory).free = Millis(-1), []
    assert not has_room(it._context, it.state.jobs[LATER])
