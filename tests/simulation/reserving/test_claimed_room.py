"""Claims on room beside other features: pools and lines, elastic gangs, several priorities."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from eva_master.app.policy_registry import policies
from eva_master.app.sections.building import build_policy
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.job import Latency
from eva_master.model.planning.suspension import Preemption
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import JobState
from tests.fakes.fleets.limited_room import GAP_MS, MINUTE_MS, World, sold


def short_before_eva() -> Policy:
    front = build_policy("cloudcoaster", {"slots": 4, "hold_s": 20})
    return Splitter.of_short(front, build_policy("eva", {}), 90_000, shares=True)


def test_an_urgent_short_job_gets_the_first_member_of_a_pool_as_soon_as_it_is_up() -> None:
    world = World(short_before_eva(), sold(4, 1))
    stated: dict[str, object] = {"duration_ms": 5_000, "latency": Latency.SHORT}
    world.job("plain", 4, 5, **stated)
    world.job("urgent", 4, 5, at_s=1, priority=2, **stated)
    assert world.run(world.ended, limit_ms=60 * MINUTE_MS)
    (up,) = {it.ready_ms for it in world.state.instances.values()}
    assert up is not None
    assert world.began_ms("urgent") <= up + GAP_MS + 5_000
    assert world.began_ms("plain") <= world.began_ms("urgent") + 5_000 + 2 * GAP_MS


@pytest.mark.parametrize("policy", ["eva_published", "stratus", "eva", "no_packing", "hadar"])
def test_jobs_of_several_priorities_begin_in_one_round_if_there_is_room(policy: str) -> None:
    round_ms = 300_000
    kind = policies()[policy]
    world = World(
        kind.build(kind.config()), sold(4, 9), round_gap_ms=round_ms, round_grid_ms=round_ms
    )
    for priority in range(5):
        world.job(f"p{priority}", 4, 600, at_s=10, priority=priority)
    assert world.run(world.ended, limit_ms=120 * MINUTE_MS)
    assert {world.began_ms(f"p{priority}") // round_ms for priority in range(5)} == {1}


@pytest.mark.parametrize("policy", ["eva_published", "eva", "no_packing", "hadar"])
def test_of_several_priorities_the_highest_begin_in_one_round(policy: str) -> None:
    round_ms = 300_000
    kind = policies()[policy]
    world = World(
        kind.build(kind.config()), sold(4, 3), round_gap_ms=round_ms, round_grid_ms=round_ms
    )
    for priority in range(5):
        world.job(f"p{priority}", 4, 900, at_s=10, priority=priority)
    assert world.run(world.ended, limit_ms=240 * MINUTE_MS)
    first = {it for it in range(5) if world.began_ms(f"p{it}") // round_ms == 1}
    assert first == {2, 3, 4}


@pytest.mark.parametrize("seed", [1, 6])
def test_no_owned_node_stands_empty_while_a_job_with_a_priority_waits(seed: int) -> None:
    random = Random(seed)
    box = replace(sold(4, None), purchase=Purchase.OWNED)
    names = [InstanceId("n0"), InstanceId("n1")]
    nodes = {name: OwnedNode(name, box, MINUTE_MS) for name in names}
    world = World(build_policy("slearn", {}), nodes=nodes)
    for number in range(random.randint(4, 9)):
        array = random.random() < 0.3
        world.job(
            f"j{number}",
            random.choice([1, 2, 4]),
            random.randint(20, 300),
            at_s=random.randint(0, 300),
            tasks=2 if array else 1,
            kind=JobKind.ARRAY if array else JobKind.GANG,
            priority=random.choice([0, 0, 1, 5, 9]),
        )
    since: dict[InstanceId, int] = {}

    def over() -> bool:
        now, state = world.timeline.now(), world.state
        for name in state.live:
            if state.unplaced and not state.places.targeting(name):
                assert now - since.setdefault(name, now) <= 2 * GAP_MS
            else:
                since.pop(name, None)
        return now > 310_000 and not state.active

    assert world.run(over, limit_ms=600 * MINUTE_MS)


@pytest.mark.parametrize("preemption", Preemption)
@pytest.mark.parametrize("priority", [0, 9])
def test_an_elastic_gang_shrinks_for_an_urgent_job_as_for_an_equal_one(
    priority: int, preemption: Preemption
) -> None:
    world = World(build_policy("eva", {}), sold(8, 1), preemption=preemption)
    world.job("gang", 2, 3_600, tasks=4, kind=JobKind.GANG, least=1, total_steps=100_000)
    world.job("comer", 4, 120, at_s=600, priority=priority)
    assert world.run(lambda: world.timeline.now() > 700_000, limit_ms=60 * MINUTE_MS)
    assert world.began_ms("comer") <= 660_000
    gang = next(it for it in world.state.jobs.values() if it.spec.name == "gang")
    assert (gang.sizing.members, gang.state) == (2, JobState.RUNNING)
