"""Rounds end where nothing happens, whatever the reasons for which tasks wait."""

from __future__ import annotations

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Limits, Settings
from eva_master.model.fleet.partitions import Partition, PartitionLimits, Partitions
from eva_master.model.job import JobSpec
from eva_master.testing.snapshots import offer, task
from eva_wire.values.bounds import JobKind

CATALOG = (offer("two", (0, 2, 8), 0.1), offer("four", (0, 4, 16), 0.2))
MAIN = Partition("main", default=True, limits=PartitionLimits(instances=2))
MINUTE_MS = 60_000


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("policy", ["eva", "no_packing", "stratus", "synergy"])
def test_rounds_end_where_tasks_that_are_alike_wait_for_different_limits(
    policy: str, profile: bool
) -> None:
    settings = Settings(
        round_gap_ms=1_000,
        profile=profile,
        limits=Limits(instances_per_job=1),
        partitions=Partitions((MAIN,)),
    )
    world = SimulatedCluster(CATALOG, named_policy(policy)[0], settings=settings)
    tasks = tuple(task("a", any=(0, cpus, 1)) for cpus in (1, 2, 2, 1))
    world.submit(JobSpec("a", "x", tasks, kind=JobKind.ARRAY, duration_ms=600 * MINUTE_MS))
    # Nothing is measured meanwhile: the first task boots, and begins.
    world.run(lambda: world.timeline.now() >= 4 * MINUTE_MS, limit_ms=5 * MINUTE_MS)
    assert world.state.counters.rounds <= 6
    assert sum(bool(run.waiting_for) for run in world.state.runs.values())
