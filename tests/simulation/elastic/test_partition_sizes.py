"""Elastic gangs get no size that their partition may never have."""

from __future__ import annotations

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.fleet.partitions import Budget, Partition, PartitionLimits, Partitions
from eva_master.packing.elastic.fixed import built
from eva_wire.values.states import JobState
from tests.fakes.jobs import CATALOG, MEDIUM, job

TEN_MINUTES_MS = 600_000


@pytest.mark.parametrize("policy", ["no_packing", "stratus", "eva"])
@pytest.mark.parametrize(
    "part",
    [
        Partition("main", default=True, limits=PartitionLimits(instances=2)),
        Partition("main", default=True, budget=Budget(per_hour=2 * MEDIUM.price)),
    ],
)
def test_a_gang_starts_with_what_its_partition_may_have(policy: str, part: Partition) -> None:
    kind = policies()[policy]
    world = SimulatedCluster(
        CATALOG,
        {part.name: built(kind, kind.config())},
        settings=Settings(partitions=Partitions((part,))),
        work_of=lambda _: Work(TEN_MINUTES_MS),
    )
    # Twice the members are twice as fast: more would not cost more.
    linear = tuple((members, members) for members in range(1, 7))
    gang = job("g", *([4] * 6), least=1, scaling=linear)
    world.submit(gang)
    assert world.run(world.quiet, limit_ms=10 * TEN_MINUTES_MS)
    (found,) = world.state.jobs.values()
    assert found.state is JobState.SUCCEEDED
    assert found.members == 2
