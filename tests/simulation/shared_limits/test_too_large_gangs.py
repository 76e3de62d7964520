"""Gangs that need more than the cloud's quota: they hold others up for a while and not for ever."""

from __future__ import annotations

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.model.fleet.partitions import Partition
from eva_wire.values.ids import RunId
from tests.fakes.jobs import job
from tests.simulation.shared_limits.turns import (
    CI,
    MINUTE_MS,
    ML,
    UNLIMITED,
    come,
    pass_time,
    whole,
    world_of,
)

WHOLE = (Partition("ml", default=True),)
GATHERS_MS = 30 * MINUTE_MS


def quota(world: SimulatedCluster, most: int) -> None:
    world.cloud.sold_out = lambda _: len(world.cloud.existing()) >= most


def begun(world: SimulatedCluster) -> list[str]:
    return [job.spec.name for job in world.state.jobs.values() if job.started_ms is not None]


@pytest.mark.parametrize("policy", ["no_packing", "eva"])
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("parts", [WHOLE, (ML, CI), (CI, ML)], ids=["whole", "ml-ci", "ci-ml"])
def test_a_gang_larger_than_the_quota_of_the_cloud_lets_others_begin(
    parts: tuple[Partition, ...], most: int, policy: str
) -> None:
    world = world_of(*parts, catalog=UNLIMITED, policy=policy, minutes=2)
    quota(world, most)
    come(world, job("gang", *[8] * (most + 1), partition=parts[-1].name, priority=9))
    come(world, *(whole(name, parts[0].name) for name in "abcd"))
    come(world, whole("last", parts[-1].name))
    pass_time(world, 2 * GATHERS_MS - MINUTE_MS)
    assert set(begun(world)) == {*"abcd", "last"}
    quota(world, most + 1)
    pass_time(world, 10 * MINUTE_MS)
    assert "gang" in begun(world), "once the quota has grown it begins"


@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)], ids=["ml-ci", "ci-ml"])
def test_users_are_told_who_is_next_while_the_gang_is_not(parts: tuple[Partition, ...]) -> None:
    world = world_of(*parts, catalog=UNLIMITED, minutes=60)
    quota(world, 1)
    come(world, job("gang", 8, 8, partition="ci"), whole("a", "ml"), whole("b", "ml"))
    pass_time(world, GATHERS_MS - MINUTE_MS)
    waiting = world.state.runs[RunId("b-3/0")]
    assert "gang-1 of partition ci is next" in waiting.waiting_for
    pass_time(world, 12 * MINUTE_MS)
    assert begun(world) == ["a"]
    assert "gang-1" not in world.state.runs[RunId("b-3/0")].waiting_for
