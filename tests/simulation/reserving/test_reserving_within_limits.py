"""Room is kept for nobody whom limits keep from ever starting."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Limits, Settings
from eva_master.model.fleet.partitions import Budget, Partition, PartitionLimits, Partitions
from eva_master.model.planning.suspension import Preemption
from eva_wire.values.ids import JobId
from eva_wire.values.states import JobState
from tests.fakes.jobs import LARGE, job

MINUTE_MS = 60_000
CATALOG = (replace(LARGE, limit=5),)
BIG, SMALL = JobId("big-1"), JobId("small-2")


def divided(**part: object) -> Settings:
    return Settings(partitions=Partitions((Partition("main", default=True, **part),)))  # type: ignore[arg-type]


class World(SimulatedCluster):
    """A cluster whose master restarts with other settings."""

    def follow(self, settings: Settings) -> None:
        """Restart the master with other settings."""
        self._settings = settings
        self.restart()


def world_of(settings: Settings) -> World:
    kind = policies()["no_packing"]
    policy = kind.build(kind.config())
    named = {it.name: policy for it in settings.partitions.parts}
    return World(
        CATALOG,
        named or policy,
        settings=settings,
        work_of=lambda _: Work(10 * MINUTE_MS),
    )


@pytest.mark.parametrize("preemption", Preemption)
@pytest.mark.parametrize(
    "settings",
    [
        divided(limits=PartitionLimits(instances=2)),
        divided(budget=Budget(per_hour=2 * LARGE.price)),
        Settings(limits=Limits(instances=2)),
        Settings(limits=Limits(instances_per_user=2)),
        Settings(limits=Limits(instances_per_job=2)),
    ],
)
def test_a_job_that_limits_never_let_start_keeps_nobody_waiting(
    settings: Settings, preemption: Preemption
) -> None:
    parts = Partitions((Partition("main", default=True),))
    world = world_of(Settings(partitions=parts if settings.partitions.divided else Partitions()))
    world.submit(job("big", 8, 8, 8, priority=1))
    assert world.run(lambda: BIG in world.state.jobs, limit_ms=MINUTE_MS)
    # Under the limits it would be refused: they are stricter only from now on.
    world.follow(replace(settings, preemption=preemption))
    world.submit(job("small", 2, 2, array=True))
    jobs = world.state.jobs
    assert world.run(
        lambda: SMALL in jobs and jobs[SMALL].state is JobState.SUCCEEDED,
        limit_ms=60 * MINUTE_MS,
    )
    assert jobs[BIG].state is JobState.PENDING
    assert "may" in world.state.runs[f"{BIG}/0"].waiting_for


def test_a_job_that_starts_once_there_are_fewer_instances_comes_first() -> None:
    world = world_of(divided(limits=PartitionLimits(instances=2)))
    small = job("small", *[8] * 6, array=True, concurrency=2)
    world.submit(replace(small, name="first"))
    assert world.run(lambda: len(world.workers.running()) == 2, limit_ms=30 * MINUTE_MS)
    world.submit(job("big", 8, 8, priority=1))
    jobs = world.state.jobs
    big = JobId("big-2")
    assert world.run(
        lambda: big in jobs and jobs[big].state is JobState.SUCCEEDED, limit_ms=60 * MINUTE_MS
    )
    assert jobs[JobId("first-1")].state is JobState.PENDING
