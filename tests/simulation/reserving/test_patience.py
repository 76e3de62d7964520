"""Jobs that have waited for long for limited room, against a stream of others of their priority."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.app.sections.building import build_policy
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.nodes import OwnedNode
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import RunState
from tests.fakes.fleets.limited_room import GAP_MS, MINUTE_MS, World, sold

PATIENCE_MS = 30 * MINUTE_MS
FOREVER = {"": PATIENCE_MS}


def stream(world: World, *, cpus: int, every_s: int, seconds: int, until_min: int = 120) -> None:
    for number in range(until_min * 60 // every_s):
        world.job(f"s{number}", cpus, seconds, at_s=number * every_s)


def begins_within(world: World, name: str, limit_min: float) -> bool:
    def begun() -> bool:
        return any(
            run.state is RunState.RUNNING and run.id.startswith(f"{name}-")
            for run in world.state.runs.values()
        )

    return world.run(lambda: begun() or world.timeline.now() > limit_min * MINUTE_MS) and begun()


@pytest.mark.parametrize("policy", ["eva", "no_packing"])
@pytest.mark.parametrize("patient", [True, False])
def test_a_gang_of_two_begins_behind_a_stream_of_single_jobs(policy: str, patient: bool) -> None:
    world = World(build_policy(policy, {}), sold(4, 2), patience=FOREVER if patient else {})
    stream(world, cpus=4, every_s=120, seconds=300)
    world.job("gang", 4, 60, at_s=300, tasks=2, kind=JobKind.GANG)
    # The gang has waited for 30 minutes after 35, and then for what runs, and two rounds.
    assert begins_within(world, "gang", 35 + 6 + 1) is patient


@pytest.mark.parametrize("owned", [False, True])
def test_a_large_task_begins_behind_a_stream_of_small_ones(owned: bool) -> None:
    box = sold(4, 1)
    node = replace(box, purchase=Purchase.OWNED, limit=None)
    name = InstanceId("n0")
    nodes = {name: OwnedNode(name, node, MINUTE_MS)} if owned else {}
    world = World(build_policy("eva", {}), *([] if owned else [box]), patience=FOREVER, nodes=nodes)
    stream(world, cpus=1, every_s=60, seconds=400)
    world.job("large", 4, 60, at_s=300)
    assert begins_within(world, "large", 35 + 7 + 1)


def test_tasks_that_are_known_to_end_before_use_the_room_meanwhile() -> None:
    world = World(build_policy("eva", {}), sold(4, 1), patience=FOREVER)
    for number in range(4):
        minutes = 60 if number == 0 else 34
        world.job(f"long{number}", 1, minutes * 60, duration_ms=minutes * MINUTE_MS)
    world.job("large", 4, 60, at_s=60, duration_ms=MINUTE_MS)
    world.job("fits", 1, 300, at_s=120, duration_ms=5 * MINUTE_MS)
    world.job("late", 1, 3_600, at_s=130, duration_ms=60 * MINUTE_MS)
    world.job("untold", 1, 300, at_s=140)
    assert world.run(lambda: not world.state.active and world.timeline.now() > MINUTE_MS)
    assert world.began_ms("fits") < 36 * MINUTE_MS
    began = world.began_ms("large")
    assert 60 * MINUTE_MS < began < 60 * MINUTE_MS + 60_000 + 2 * GAP_MS
    assert world.began_ms("late") > began
    assert world.began_ms("untold") > began


def test_patience_holds_up_no_job_of_a_higher_priority() -> None:
    world = World(build_policy("eva", {}), sold(4, 1), patience=FOREVER)
    world.job("first", 1, 45 * 60)
    world.job("large", 4, 60, at_s=60)
    world.job("urgent", 1, 60, at_s=40 * 60, priority=1)
    world.job("equal", 1, 60, at_s=40 * 60)
    assert world.run(lambda: not world.state.active and world.timeline.now() > 41 * MINUTE_MS)
    assert world.began_ms("urgent") < 41 * MINUTE_MS
    assert world.began_ms("equal") > world.began_ms("large") > 45 * MINUTE_MS


def test_time_that_a_job_has_waited_outlives_a_restart() -> None:
    world = World(build_policy("eva", {}), sold(4, 1), patience=FOREVER)
    stream(world, cpus=1, every_s=60, seconds=400)
    world.job("large", 4, 60, at_s=300)
    assert world.run(lambda: world.timeline.now() > 20 * MINUTE_MS)
    world.restart()
    assert begins_within(world, "large", 35 + 7 + 1)


def test_a_job_says_that_it_has_waited_long_and_others_say_for_which_they_wait() -> None:
    world = World(build_policy("eva", {}), sold(4, 1), patience=FOREVER)
    world.job("first", 1, 45 * 60)
    world.job("large", 4, 60, at_s=60)
    world.job("equal", 1, 60, at_s=40 * 60)
    assert world.run(lambda: world.timeline.now() > 41 * MINUTE_MS)
    told = {run.id.rpartition("-")[0]: run.waiting_for for run in world.state.runs.values()}
    limit = "limit of box.4@local/on-demand reached"
    kept = "kept for it once there is room: i00001"
    assert told["large"] == f"{limit}; {kept}, since it has waited for more than 30m"
    assert told["equal"] == "room is kept for large-2, which has waited for more than 30m"


def test_a_job_that_has_waited_long_and_is_more_urgent_gets_room_that_becomes_free() -> None:
    # Two claims name it: one for its patience, one that jobs of its priority share.
    world = World(build_policy("eva", {}), sold(4, 2), patience=FOREVER)
    world.job("long", 4, 90 * 60, priority=1)
    world.job("first", 4, 40 * 60, priority=1)
    world.job("second", 4, 60, at_s=60, priority=1)
    world.job("lower", 4, 60, at_s=70)
    assert world.run(lambda: not world.state.active and world.timeline.now() > MINUTE_MS)
    assert world.began_ms("second") < 42 * MINUTE_MS
    assert world.began_ms("lower") < 44 * MINUTE_MS
