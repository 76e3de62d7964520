"""A gang of more members than instances may be launched shares instances, beside other jobs too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Limits, Settings
from eva_master.model.fleet.partitions import Budget, Partition, PartitionLimits, Partitions
from eva_master.model.job import JobSpec
from eva_master.testing.snapshots import offer, task

CATALOG = (offer("four", (0, 4, 16), 0.8, setup_s=10),)
ONE, QUARTER = task("w", any=(0, 4, 16)), task("g", any=(0, 1, 4))
MINUTE_MS = 60_000


def divided(**main) -> Settings:
    return Settings(partitions=Partitions((Partition("main", default=True, **main),)))


LIMITS = {
    "instances": Settings(limits=Limits(instances=5)),
    "instances_per_user": Settings(limits=Limits(instances_per_user=4)),
    "instances_per_job": Settings(limits=Limits(instances_per_job=4)),
    "instances of the partition": divided(limits=PartitionLimits(instances=5)),
    "budget of an hour": divided(budget=Budget(per_hour=4_000_000)),
}


def busy(settings: Settings) -> SimulatedCluster:
    """A cluster with a job of another user that runs on for hours."""
    world = SimulatedCluster(CATALOG, named_policy("eva")[0], settings=settings)
    world.submit(JobSpec("long", "other", (ONE,), duration_ms=500 * MINUTE_MS))
    assert world.run(lambda: started(world, "long"), limit_ms=5 * MINUTE_MS)
    return world


def started(world: SimulatedCluster, name: str) -> bool:
    return any(
        job.spec.name == name and job.started_ms is not None for job in world.state.jobs.values()
    )


def places(world: SimulatedCluster, name: str) -> set[str | None]:
    runs = world.state.runs.values()
    return {run.instance for run in runs if world.state.jobs[run.job].spec.name == name}


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("limit", LIMITS)
def test_a_gang_beyond_a_limit_runs_on_fewer_instances(limit: str, profile: bool) -> None:
    world = busy(replace(LIMITS[limit], profile=profile))
    # One task beside another keeps 0.95 of its speed: the gang is worth most apart.
    world.submit(JobSpec("gang", "a", (QUARTER,) * 16, duration_ms=MINUTE_MS))
    assert world.run(lambda: started(world, "gang"), limit_ms=5 * MINUTE_MS)
    assert len(places(world, "gang")) == 4


def test_a_gang_of_a_leader_and_many_workers_is_no_exception() -> None:
    world = busy(Settings(limits=Limits(instances_per_job=80)))
    workers = (QUARTER,) * 300
    world.submit(JobSpec("gang", "a", (task("g", any=(0, 2, 8)), *workers), duration_ms=MINUTE_MS))
    assert world.run(lambda: started(world, "gang"), limit_ms=5 * MINUTE_MS)
    assert len(places(world, "gang")) == 76


def test_all_gangs_get_their_turn() -> None:
    world = busy(Settings(limits=Limits(instances=5)))
    for name in "abc":
        world.submit(JobSpec(name, name, (QUARTER,) * 16, duration_ms=MINUTE_MS))
    assert world.run(lambda: world.state.counters.completions == 3, limit_ms=20 * MINUTE_MS)


def test_a_gang_that_does_not_fit_waits_with_the_limit_as_the_reason() -> None:
    world = busy(Settings(limits=Limits(instances=4)))
    world.submit(JobSpec("gang", "a", (QUARTER,) * 16, duration_ms=MINUTE_MS))
    assert not world.run(lambda: started(world, "gang"), limit_ms=5 * MINUTE_MS)
    reasons = {run.waiting_for for run in world.state.runs.values() if run.instance is None}
    assert reasons == {"the cluster may have 4 instances (limits.instances)"}


def test_a_gang_within_the_limits_stays_as_the_policy_has_it() -> None:
    world = busy(replace(LIMITS["instances_per_job"], profile=True))
    world.submit(JobSpec("gang", "a", (QUARTER,) * 4, duration_ms=MINUTE_MS))
    assert world.run(lambda: started(world, "gang"), limit_ms=5 * MINUTE_MS)
    assert len(places(world, "gang")) == 4


def test_members_that_have_places_are_not_moved_together() -> None:
    """An attempt that has lost some of its members waits for as many instances as it had."""
    world = busy(Settings(limits=Limits(instances=9), profile=True))
    world.submit(JobSpec("gang", "a", (QUARTER,) * 8, duration_ms=60 * MINUTE_MS))
    assert world.run(lambda: started(world, "gang"), limit_ms=5 * MINUTE_MS)
    before = places(world, "gang")
    assert len(before) == 8
    world.submit(JobSpec("more", "b", (QUARTER,) * 16, duration_ms=MINUTE_MS))
    world.run(lambda: False, limit_ms=5 * MINUTE_MS)
    assert places(world, "gang") == before
