"""When an instance that has emptied goes: at once, with a plan, after a boot, or later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_master.control.features.emptied.memory import EmptiedMemory
from eva_master.control.settings import Limits
from eva_master.model.catalog import Purchase
from eva_master.model.events import (
    CancelRequested,
    ClosingDown,
    DrainRequested,
    InstanceInterrupted,
    LaunchFailed,
    SuspendRequested,
)
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import LIVE, InstanceState, RunState
from tests.fakes.emptied.worlds import (
    BOOT_MS,
    DELAYS,
    FIRST,
    MINUTE_MS,
    SETTINGS,
    Idle,
    Scripted,
    World,
    after,
    ended_ms,
    entered,
)
from tests.fakes.jobs import LARGE, SMALL, job

ONE = replace(SMALL, limit=1)
ROUND_MS = 5_000
TURNS_MS = 1_000
"""For answers of the planner and of the cloud."""


def test_an_instance_goes_at_once_if_nothing_waits_that_fits_it() -> None:
    world = World(SMALL, replace(LARGE, limit=1))
    world.come(job("long", 8, minutes=30))
    world.come(job("large", 8, minutes=3), at_min=1)
    world.come(job("small", 2, minutes=3), at_min=2)
    world.play(20)
    assert world.state.runs[RunId("large-2/0")].state is RunState.WAITING
    place = world.state.runs[RunId("small-3/0")].places[-1][1]
    assert entered(world, InstanceState.TERMINATING, place) == ended_ms(world, "small-3/0")


def test_a_drained_instance_goes_at_once_though_a_task_waits_that_fits_it() -> None:
    world = World(ONE)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=1), at_min=1)
    world.post(DrainRequested, FIRST, at_min=3)
    world.finish()
    assert entered(world, InstanceState.TERMINATING) == ended_ms(world, "a-1/0")
    assert world.ended() == 2


def test_an_instance_that_the_cloud_takes_away_goes_once_its_task_has_stopped() -> None:
    spot = replace(SMALL, limit=1, purchase=Purchase.SPOT)
    world = World(spot)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=1), at_min=1)
    world.play(3)
    session = world.state.sessions[FIRST]
    away = Millis(world.timeline.now() + 120_000)
    world.inbox.post(InstanceInterrupted(FIRST, session, away, "it is wanted elsewhere"))
    world.play(3.4)
    assert world.state.instances[FIRST].state is not InstanceState.READY
    world.finish()
    assert world.ended() == 2


def test_all_go_when_the_master_closes_down() -> None:
    world = World(ONE)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=1), at_min=1)
    assert world.run(lambda: bool(world.machine._context.memory(EmptiedMemory).kept()))
    world.inbox.post(ClosingDown())
    world.run(lambda: entered(world, InstanceState.TERMINATING) >= 0, limit_ms=1)
    assert entered(world, InstanceState.TERMINATING) == world.timeline.now()


def test_an_instance_goes_once_the_task_is_cancelled_for_which_it_stays() -> None:
    world = Scripted(Idle("b-"), SMALL)
    world.come(job("a", 2, minutes=5))
    world.come(job("other", 2, minutes=60))
    world.come(job("b", 2, minutes=1), at_min=1)
    assert world.run(lambda: FIRST in world.state.instances)
    assert world.run(lambda: RunId("a-1/0") in world.state.runs and not at_work(world, "a-1/0"))
    world.play(world.timeline.now() / MINUTE_MS + 0.5)
    assert world.state.instances[FIRST].state is InstanceState.READY
    world.inbox.post(CancelRequested("c", JobId("b-3"), "me"))
    now = world.timeline.now()
    world.run(lambda: entered(world, InstanceState.TERMINATING) >= 0, limit_ms=TURNS_MS)
    assert entered(world, InstanceState.TERMINATING) == now


def at_work(world: World, run: str) -> bool:
    return world.state.runs[RunId(run)].state is not RunState.SUCCEEDED


def test_an_instance_that_plans_leave_empty_stays_for_a_boot_and_no_longer() -> None:
    world = Scripted(Idle("b-"), SMALL)
    world.come(job("a", 2, minutes=5))
    world.come(job("other", 2, minutes=60))
    world.come(job("b", 2, minutes=1), at_min=1)
    world.play(20)
    idle = entered(world, InstanceState.TERMINATING) - ended_ms(world, "a-1/0")
    assert BOOT_MS <= idle <= BOOT_MS + ROUND_MS + TURNS_MS


def test_an_instance_stays_for_longer_while_no_other_can_be_had() -> None:
    world = Scripted(Idle("b-"), SMALL)
    world.come(job("a", 2, minutes=5))
    world.come(job("other", 2, minutes=60))
    world.come(job("b", 2, minutes=1), at_min=1)
    world.play(5)
    until = Millis(15 * MINUTE_MS)
    world.state.set_unavailable([SMALL.id], until, "sold out")
    world.play(14)
    assert world.state.instances[FIRST].state is InstanceState.READY
    world.play(20)
    gone = entered(world, InstanceState.TERMINATING)
    assert until <= gone <= until + BOOT_MS


def test_policies_with_rounds_give_back_at_once_what_can_be_had_again() -> None:
    world = Scripted(Idle(), ONE, settings=replace(SETTINGS, round_grid_ms=300_000))
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=1), at_min=1)
    world.play(14)
    assert entered(world, InstanceState.TERMINATING) == ended_ms(world, "a-1/0")


def test_policies_with_rounds_keep_what_cannot_be_had_again_for_the_next_round() -> None:
    world = World(SMALL, settings=replace(SETTINGS, round_grid_ms=300_000), policy="no_packing")
    world.come(job("a", 2, minutes=4))
    world.play(8)  # It was launched at 5 min, and is empty at 10 min; there is a round at 15 min.
    world.state.set_unavailable([SMALL.id], Millis(60 * MINUTE_MS), "sold out")
    world.come(job("b", 2, minutes=1), at_min=9)
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)


def test_an_instance_makes_way_for_one_of_another_type_where_the_number_is_limited() -> None:
    world = World(SMALL, LARGE, settings=replace(SETTINGS, limits=Limits(instances=1)))
    world.come(job("a", 2, minutes=5))
    world.come(job("large", 8, minutes=5, priority=1), at_min=1)
    world.come(job("small", 2, minutes=5), at_min=2)
    world.finish()
    first = world.state.runs[RunId("large-2/0")].history
    began = next(at for state, at in first if state == RunState.RUNNING.value)
    # An end, two rounds, and a boot.
    assert began - ended_ms(world, "a-1/0") < BOOT_MS + 2 * ROUND_MS + 5 * TURNS_MS
    assert world.ended() == 3


def test_an_instance_that_has_emptied_takes_the_task_for_which_one_like_it_boots() -> None:
    world = World(SMALL)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=5), at_min=6)
    world.finish()
    assert world.launches == 2
    assert world.ended() == 2
    (run,) = world.state.members(JobId("b-2"))
    assert [place for _, place in run.places] == [FIRST]
    assert len(world.billed_long(BOOT_MS)) == 1


@pytest.mark.parametrize("suspended", [True, False])
def test_an_instance_that_boots_without_a_task_takes_that_of_a_younger_one(
    *, suspended: bool
) -> None:
    world = World(SMALL)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=5), at_min=0.5)
    world.post(SuspendRequested if suspended else CancelRequested, JobId("a-1"), "me", at_min=0.75)
    world.play(0.9)
    (first, second) = world.state.instances.values()
    assert first.state in LIVE
    assert second.state not in LIVE
    world.post(CancelRequested, JobId("a-1"), "me", at_min=4)
    world.finish()
    (run,) = world.state.members(JobId("b-2"))
    assert [place for _, place in run.places] == [FIRST]
    began = next(at for state, at in run.history if state == RunState.STARTING.value)
    assert began < BOOT_MS + 0.25 * MINUTE_MS


def test_an_instance_that_boots_goes_at_once_if_those_like_it_are_ready_before() -> None:
    world = World(SMALL)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=5), at_min=0.5)
    world.post(CancelRequested, JobId("b-2"), "me", at_min=0.75)
    world.finish()
    (run,) = world.state.members(JobId("a-1"))
    second = next(it for it in world.state.instances if it != FIRST)
    assert entered(world, InstanceState.TERMINATING, second) == 0.75 * MINUTE_MS
    assert [place for _, place in run.places] == [FIRST]


def test_a_master_that_restarts_while_an_instance_is_empty() -> None:
    world = World(ONE)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=5), at_min=1)
    assert world.run(lambda: bool(world.machine._context.memory(EmptiedMemory).kept()))
    world.restart()
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)


def test_a_master_that_restarts_without_tasks_gives_back_what_is_empty() -> None:
    world = World(ONE)
    world.come(job("a", 2, minutes=5))
    world.come(job("b", 2, minutes=5), at_min=1)
    assert world.run(lambda: bool(world.machine._context.memory(EmptiedMemory).kept()))
    world.inbox.post(CancelRequested("c", JobId("b-2"), "me"))
    world.restart()
    world.inbox.post(CancelRequested("c", JobId("b-2"), "me"))
    world.finish()
    assert world.launches == 1


@pytest.mark.parametrize("waits", [True, False])
def test_an_instance_whose_task_is_cancelled_while_it_boots(*, waits: bool) -> None:
    world = World(ONE)
    world.come(job("a", 2, minutes=5))
    if waits:
        world.come(job("b", 2, minutes=5), at_min=0.2)
    world.post(CancelRequested, JobId("a-1"), "me", at_min=0.5)
    world.finish()
    assert world.launches == 1
    assert world.ended() == waits
    if not waits:
        assert entered(world, InstanceState.TERMINATING) == MINUTE_MS // 2


def test_a_chain_whose_agents_are_slow_to_stop() -> None:
    world = World(
        delays=EqualDelays(fetch_ms=20_000, start_ms=10_000, stop_ms=30_000, report_ms=5_000)
    )
    world.come(job("a", 2, minutes=2))
    world.come(after(job("b", 2, minutes=2), "a-1"))
    world.finish()
    assert (world.launches, world.ended()) == (1, 2)


def test_a_launch_that_is_refused_keeps_the_instance_that_is_there() -> None:
    world = World(SMALL, delays=DELAYS)
    world.come(job("a", 2, minutes=5))
    world.play(3)
    refusal = LaunchFailed(InstanceId("i00002"), Millis(60 * MINUTE_MS), "sold out")
    world.come(job("b", 2, minutes=1), at_min=3)
    assert world.run(lambda: InstanceId("i00002") in world.state.instances)
    world.inbox.post(refusal)
    world.finish()
    assert world.ended() == 2
    assert world.timeline.now() < 10 * MINUTE_MS
