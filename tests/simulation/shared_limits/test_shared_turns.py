"""Partitions take turns at limits that they share: by priority, then by the time of waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Limits
from eva_master.model.catalog import Catalog, InstanceType, Offering, Purchase
from eva_master.model.events import CancelRequested, MoveRequested, SuspendRequested
from eva_master.model.fleet.partitions import Budget, Partition, PartitionLimits
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Price, RunId, Workload
from tests.fakes.jobs import LARGE, MEDIUM, job
from tests.simulation.shared_limits.turns import (
    BOOT_MS,
    CI,
    MINUTE_MS,
    ML,
    TWO,
    UNLIMITED,
    come,
    order,
    pass_time,
    whole,
    world_of,
)

NINE = [f"j{number}" for number in range(9)]


def eight_and_the_third(**more: Any) -> list[JobSpec]:
    """Eight jobs of one partition and one of the other, which comes third."""
    return [
        whole(name, "ci" if name == "j2" else "ml", **(more if name == "j2" else {}))
        for name in NINE
    ]


@pytest.mark.parametrize("policy", ["eva", "no_packing", "stratus", "fifo"])
@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)])
def test_who_came_third_begins_third_whichever_partition_stands_first(
    parts: tuple[Partition, ...], policy: str
) -> None:
    world = world_of(*parts, policy=policy)
    come(world, *eight_and_the_third())
    assert order(world) == NINE


@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)])
def test_the_highest_priority_is_next(parts: tuple[Partition, ...]) -> None:
    world = world_of(*parts)
    come(world, *(it for it in eight_and_the_third() if it.name != "j2"))
    come(world, whole("urgent", "ci", priority=9))
    assert order(world)[:2] == ["j0", "urgent"]


def test_a_user_is_told_who_is_next() -> None:
    world = world_of(ML, CI)
    come(world, whole("a", "ml"), whole("b", "ci"), whole("c", "ml"))
    come(world, whole("urgent", "ci", priority=9))
    told = world.state.runs["c-3/0"].waiting_for  # type: ignore[index]
    assert told == (
        "waits for its turn at the limit of c.8@local/on-demand: urgent-4 of partition ci is next"
        " (priority 9)"
    )


@pytest.mark.parametrize(
    "limits",
    [Limits(instances=1), Limits(instances_per_user=1)],
    ids=["limits.instances", "limits.instances_per_user"],
)
@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)])
def test_limits_of_the_cluster_and_of_users_have_a_queue(
    parts: tuple[Partition, ...], limits: Limits
) -> None:
    world = world_of(*parts, catalog=UNLIMITED, limits=limits)
    come(world, *eight_and_the_third())
    assert order(world) == NINE


def quota_of_the_cloud(world: SimulatedCluster, most: int) -> None:
    """Have the cloud refuse to have more instances at a time, whatever they are."""
    world.cloud.sold_out = lambda _: len(world.cloud.existing()) >= most


@pytest.mark.parametrize("purchase", [Purchase.ON_DEMAND, Purchase.SPOT])
@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)])
def test_what_the_cloud_refuses_has_a_queue(
    parts: tuple[Partition, ...], purchase: Purchase
) -> None:
    sold = (replace(LARGE, purchase=purchase),)
    world = world_of(*parts, catalog=sold)
    quota_of_the_cloud(world, 1)
    come(world, *eight_and_the_third())
    assert order(world) == NINE


def test_quota_of_the_cloud_that_grows_is_used_by_all() -> None:
    world = world_of(ML, CI, catalog=UNLIMITED, minutes=60)
    quota_of_the_cloud(world, 1)
    come(world, *eight_and_the_third())
    quota_of_the_cloud(world, 9)
    pass_time(world, 20 * MINUTE_MS)
    assert len(world.workers.running()) == 9


GPU = Offering(
    InstanceType("g.1", Family("g"), Resources(1, 8_000, 8_192), 10_000, 60_000), Price(1_000_000)
)


def gpu_job(name: str, partition: str, **more: Any) -> JobSpec:
    task = TaskSpec(Workload("w"), Program("true"), ((Family("g"), Resources(1, 1_000, 1_024)),))
    return with_values(JobSpec(name, "me", (task,), kind=JobKind.GANG, partition=partition), more)


@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)])
def test_the_quota_of_a_tenant_has_a_queue(parts: tuple[Partition, ...]) -> None:
    tenancy = Tenancy({"vision": quota_of({Family("g"): 1})})
    world = world_of(*parts, catalog=(GPU,), tenancy=tenancy)
    come(
        world,
        *(gpu_job(it, "ci" if it == "j2" else "ml", tenant="vision") for it in NINE),
    )
    assert order(world) == NINE


@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)])
def test_a_gang_gathers_what_becomes_free(parts: tuple[Partition, ...]) -> None:
    world = world_of(*parts, catalog=TWO)
    come(world, whole("a", "ml"))
    pass_time(world, 2 * MINUTE_MS)
    come(world, whole("b", "ml"), job("gang", 8, 8, partition="ci"))
    come(world, *(whole(name, "ml") for name in "cdefgh"))
    assert order(world)[:4] == ["a", "b", "gang", "c"]


def test_a_gang_keeps_others_waiting_for_a_while_and_not_for_ever() -> None:
    """One of two instances is in use for a day: the gang can't begin, others go on meanwhile."""
    world = world_of(ML, CI, catalog=TWO, long={"kept": 24 * 60})
    come(world, whole("kept", "ml"), job("gang", 8, 8, partition="ci"))
    come(world, *(whole(name, "ml") for name in "abc"))
    jobs = world.state.jobs
    pass_time(world, 29 * MINUTE_MS)
    assert jobs[JobId("a-3")].started_ms is None, "the gang comes first"
    pass_time(world, 30 * MINUTE_MS)
    assert [jobs[JobId(it)].started_ms is not None for it in ("a-3", "b-4", "c-5")] == [True] * 3
    assert order(world) == ["kept", "a", "b", "c", "gang"]


def test_tasks_of_an_array_wait_since_its_own_limit_lets_them_start() -> None:
    """One at a time: the second stood behind the first, not at the limit, when the others came."""
    world = world_of(ML, CI)
    come(world, job("array", *[8] * 3, array=True, partition="ml", concurrency=1))
    come(world, whole("b", "ci"), whole("d", "ci"))
    assert order(world) == ["array", "b", "d"]
    runs = world.state.runs
    second = next(at for state, at in runs[RunId("array-1/1")].history if state == "starting")
    started = {it.spec.name: it.started_ms for it in world.state.jobs.values()}
    assert started["d"] is not None
    assert second > started["d"]


def test_arrays_take_turns_with_jobs_of_another_partition() -> None:
    world = world_of(ML, CI)
    come(world, job("array", *[8] * 3, array=True, partition="ml"))
    come(world, whole("b", "ci"), whole("c", "ml"))
    assert order(world) == ["array", "b", "c"]
    runs = world.state.runs
    last = next(at for state, at in runs[RunId("array-1/2")].history if state == "starting")
    started = {it.spec.name: it.started_ms for it in world.state.jobs.values()}
    assert started["b"] is not None
    assert last < started["b"], "all three of them waited before it"


@pytest.mark.parametrize(
    "part",
    [
        replace(CI, budget=Budget(per_hour=LARGE.price - 1)),
        replace(CI, limits=PartitionLimits(instances=0)),
    ],
)
def test_who_may_have_nothing_now_holds_up_nobody(part: Partition) -> None:
    """Two partitions with budgets: one has none left, and its job is the oldest that waits."""
    ml = replace(ML, budget=Budget(per_hour=10 * LARGE.price))
    world = world_of(ml, part)
    come(world, whole("a", "ml"), whole("never", "ci", priority=9))
    come(world, *(whole(name, "ml") for name in "bcd"))
    assert world.run(
        lambda: sum(it.started_ms is not None for it in world.state.jobs.values()) == 4,
        limit_ms=4 * (5 * MINUTE_MS + BOOT_MS) + 2 * MINUTE_MS,
    )


def test_who_is_over_its_tenants_quota_holds_up_nobody() -> None:
    tenancy = Tenancy({"vision": quota_of({Family("g"): 1})}, names=("others",))
    catalog = (replace(GPU, limit=2),)
    world = world_of(ML, CI, catalog=catalog, tenancy=tenancy, long={"v": 60})
    come(world, gpu_job("v", "ci", tenant="vision"))
    come(world, gpu_job("over", "ci", tenant="vision", priority=9))
    come(world, *(gpu_job(name, "ml", tenant="others") for name in "abc"))
    jobs = world.state.jobs
    assert world.run(
        lambda: all(jobs[JobId(it)].started_ms is not None for it in ("a-3", "b-4", "c-5")),
        limit_ms=3 * (5 * MINUTE_MS + BOOT_MS) + MINUTE_MS,
    )


Event = Callable[[str], object]


@pytest.mark.parametrize(
    "event",
    [
        lambda job: CancelRequested("x", JobId(job), "me"),
        lambda job: SuspendRequested("x", JobId(job), "me"),
    ],
)
def test_who_gives_up_its_turn_while_it_gathers_makes_way_at_once(event: Event) -> None:
    world = world_of(ML, CI, catalog=TWO, minutes=20)
    come(world, whole("a", "ml"), job("gang", 8, 8, partition="ci"), whole("b", "ml"))
    pass_time(world, 3 * MINUTE_MS)
    assert world.state.jobs[JobId("b-3")].started_ms is None, "the gang is before it"
    world.inbox.post(event("gang-2"))  # type: ignore[arg-type]
    pass_time(world, BOOT_MS + 30_000)
    assert world.state.jobs[JobId("b-3")].started_ms is not None


def test_a_job_that_moves_keeps_its_place_in_the_queue() -> None:
    world = world_of(ML, CI)
    come(world, whole("a", "ml"), whole("b", "ml"), whole("c", "ci"), whole("d", "ml"))
    world.inbox.post(MoveRequested("m", JobId("b-2"), "ci", "me", operator=True))
    world.inbox.post(MoveRequested("n", JobId("c-3"), "ml", "me", operator=True))
    assert order(world) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("after_min", [1, 4, 8])
def test_the_queue_survives_a_restart_of_the_master(after_min: int) -> None:
    world = world_of(ML, CI)
    come(world, *eight_and_the_third())
    pass_time(world, after_min * MINUTE_MS)
    world.restart()
    assert order(world) == NINE


@pytest.mark.parametrize("policy", ["no_packing", "eva"])
@pytest.mark.parametrize("after_min", [0.5, 7.2])
@pytest.mark.parametrize("parts", [(ML, CI), (CI, ML)])
def test_the_queue_at_a_quota_of_the_cloud_survives_a_restart_of_the_master(
    parts: tuple[Partition, ...], after_min: float, policy: str
) -> None:
    """The new master does not know what the cloud refused."""
    world = world_of(*parts, catalog=UNLIMITED, policy=policy)
    quota_of_the_cloud(world, 1)
    come(world, *eight_and_the_third())
    pass_time(world, round(after_min * MINUTE_MS))
    world.restart()
    assert order(world) == NINE


@pytest.mark.parametrize("grid", ["ml", "ci"])
def test_rounds_far_apart_in_one_partition_do_not_cost_its_jobs_their_turn(grid: str) -> None:
    parts = [replace(it, round_grid_ms=300_000 if it.name == grid else 0) for it in (ML, CI)]
    world = world_of(*parts)
    come(world, *eight_and_the_third())
    assert order(world) == NINE


def test_a_job_that_fits_a_limited_and_an_unlimited_type_leaves_the_limited_to_others() -> None:
    """The dearer type is for sale without limit: nobody has to wait there."""
    catalog: Catalog = (replace(MEDIUM, limit=1), LARGE)
    world = world_of(ML, CI, catalog=catalog)
    come(world, job("a", 4, partition="ml"), job("b", 4, partition="ci"), every_ms=0)
    assert world.run(lambda: len(world.workers.running()) == 2, limit_ms=2 * BOOT_MS)


class Idle:
    """A policy that places nothing."""

    def plan(self, _: Snapshot, memory: PolicyMemory | None) -> tuple[Plan, PolicyMemory | None]:
        return Plan(), memory


def test_nothing_is_kept_for_a_job_that_its_policy_never_places() -> None:
    world = world_of(ML, CI, policies={"ci": Idle()})
    come(world, whole("a", "ml"), whole("never", "ci", priority=9))
    come(world, *(whole(name, "ml") for name in "bcd"))
    assert world.run(
        lambda: sum(it.started_ms is not None for it in world.state.jobs.values()) == 4,
        limit_ms=4 * (5 * MINUTE_MS + BOOT_MS) + 2 * MINUTE_MS,
    )


def test_a_job_that_finds_one_type_too_dear_keeps_its_place_at_the_limit_of_another() -> None:
    """The large type is free, and costs a hundred times what the task is worth."""
    dear = replace(LARGE, price=Price(MEDIUM.price * 100), limit=3)
    world = world_of(ML, CI, catalog=(replace(MEDIUM, limit=1), dear))
    small = [job(it, 4, partition="ci" if it == "b" else "ml") for it in "abcd"]
    come(world, *small, every_ms=10_000)
    assert order(world) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("behind", ["ml", "ci"])
def test_the_next_task_of_an_urgent_array_has_the_instance_of_the_last(behind: str) -> None:
    world = world_of(ML, CI, policy="eva", limits=Limits(priority=9))
    tasks = job("tasks", 8, 8, 8, partition="ml", array=True, concurrency=1, priority=9)
    come(world, tasks, whole("mine", behind), whole("other", "ci"))
    assert order(world) == ["tasks", "mine", "other"]
    assert world.state.counters.instances == 2
