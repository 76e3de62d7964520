"""Gangs that each hold a part of a full quota of the cloud: one gives its part up in order."""

from __future__ import annotations

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.model.fleet.partitions import Partition
from eva_wire.values.ids import JobId
from tests.fakes.jobs import job
from tests.simulation.shared_limits.turns import (
    BOOT_MS,
    CI,
    MINUTE_MS,
    ML,
    UNLIMITED,
    come,
    order,
    pass_time,
    whole,
    world_of,
)

WHOLE = (Partition("ml", default=True),)
HELD_MS = 5 * MINUTE_MS
"""For so long a gang holds what it has."""
TRY_MS = MINUTE_MS + 5_000
"""From one try at what the cloud refuses to the next, with a round."""


def quota(world: SimulatedCluster, most: int) -> None:
    world.cloud.sold_out = lambda _: len(world.cloud.existing()) >= most


def halves(*parts: Partition) -> SimulatedCluster:
    """A gang holds one of two instances, and a more urgent one gets the other as it is free."""
    world = world_of(*parts, catalog=UNLIMITED, long={"first": 4})
    quota(world, 2)
    come(world, whole("first", parts[0].name), job("later", 8, 8, partition=parts[0].name))
    pass_time(world, 2 * MINUTE_MS)
    come(world, job("urgent", 8, 8, partition=parts[-1].name, priority=9))
    return world


@pytest.mark.parametrize("parts", [WHOLE, (ML, CI), (CI, ML)], ids=["whole", "ml-ci", "ci-ml"])
def test_the_gang_that_stands_behind_gives_its_half_up_after_a_while(
    parts: tuple[Partition, ...],
) -> None:
    world = halves(*parts)
    assert order(world) == ["first", "urgent", "later"]
    jobs = world.state.jobs
    first, urgent = jobs[JobId("first-1")].started_ms, jobs[JobId("urgent-3")].started_ms
    assert first is not None
    assert urgent is not None
    assert urgent - (first + 4 * MINUTE_MS) <= HELD_MS + 3 * TRY_MS + BOOT_MS


def test_a_gang_that_holds_a_part_keeps_it_against_those_behind_it() -> None:
    world = world_of(ML, CI, catalog=UNLIMITED, long={"first": 20})
    quota(world, 2)
    come(world, whole("first", "ml"), job("gang", 8, 8, partition="ml"))
    come(world, whole("younger", "ci"), whole("equal", "ml"))
    pass_time(world, 15 * MINUTE_MS)
    begun = [it.spec.name for it in world.state.jobs.values() if it.started_ms is not None]
    assert begun == ["first"]
    assert order(world)[:2] == ["first", "gang"]


def test_one_task_that_comes_first_gets_what_a_gang_holds() -> None:
    world = world_of(ML, CI, catalog=UNLIMITED, long={"first": 60})
    quota(world, 2)
    come(world, whole("first", "ml"), job("gang", 8, 8, partition="ml"))
    come(world, whole("urgent", "ci", priority=9))
    pass_time(world, HELD_MS + 3 * TRY_MS + BOOT_MS)
    assert world.state.jobs[JobId("urgent-3")].started_ms is not None
    assert order(world) == ["first", "urgent", "gang"]
