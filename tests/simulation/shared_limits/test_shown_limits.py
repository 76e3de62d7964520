"""Limits that partitions share, as users see them: which partitions use them, and what is next."""

from __future__ import annotations

from dataclasses import replace

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Limits
from eva_master.model.events import CancelRequested
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_master.ports.shared_limits import SharedLimit
from eva_wire.values.ids import JobId, Millis
from tests.fakes.jobs import job
from tests.simulation.shared_limits.test_shared_turns import GPU, gpu_job
from tests.simulation.shared_limits.turns import (
    CI,
    MINUTE_MS,
    ML,
    ONE,
    TWO,
    UNLIMITED,
    come,
    pass_time,
    whole,
    world_of,
)


def shown(world: SimulatedCluster) -> list[SharedLimit]:
    now = Millis(world.timeline.now())
    return list(world.machine.published().shared_limits(now))


def test_use_by_partition_and_who_waits_in_which_order() -> None:
    world = world_of(ML, CI, catalog=TWO, minutes=60)
    come(world, whole("a", "ml"), whole("b", "ci"))
    pass_time(world, 3 * MINUTE_MS)
    come(world, whole("c", "ml"), job("array", 8, 8, 8, partition="ci", array=True))
    come(world, whole("urgent", "ml", priority=9))
    (limit,) = shown(world)
    assert limit.name == "the limit of c.8@local/on-demand"
    assert (limit.used, limit.most, limit.used_by) == (2, 2, {"ci": 1, "ml": 1})
    assert [(it.job, it.partition, it.priority, it.tasks) for it in limit.waiting] == [
        ("urgent-5", "ml", 9, 1),
        ("c-3", "ml", 0, 1),
        ("array-4", "ci", 0, 3),
    ]
    world.inbox.post(CancelRequested("x", JobId("c-3"), "me"))
    pass_time(world, 2_000)
    (limit,) = shown(world)
    assert [it.job for it in limit.waiting] == ["urgent-5", "array-4"]


def test_of_many_that_wait_the_first_are_shown_with_a_count_of_the_others() -> None:
    world = world_of(ML, CI, minutes=60)
    come(world, *(whole(f"j{number:02}", "ml") for number in range(31)), every_ms=10)
    pass_time(world, MINUTE_MS)
    (limit,) = shown(world)
    assert [it.job for it in limit.waiting] == [f"j{n:02}-{n + 1}" for n in range(1, 21)]
    assert limit.more == 10


def test_limits_of_the_cluster_of_users_of_tenants_and_of_the_cloud() -> None:
    tenancy = Tenancy({"vision": quota_of({GPU.type.family: 1})})
    world = world_of(ML, CI, catalog=(GPU,), tenancy=tenancy, minutes=60)
    come(world, gpu_job("a", "ml", tenant="vision"), gpu_job("b", "ci", tenant="vision"))
    pass_time(world, MINUTE_MS)
    found = {it.kind: it for it in shown(world)}
    assert (found["tenant"].used, found["tenant"].most) == (1, 1)
    assert [it.job for it in found["tenant"].waiting] == ["b-2"]
    for limits, kind, name in (
        (Limits(instances=1), "instances", "limits.instances"),
        (Limits(instances_per_user=1), "user", "limits.instances_per_user of me"),
    ):
        world = world_of(ML, CI, catalog=UNLIMITED, limits=limits, minutes=60)
        come(world, whole("a", "ml"), whole("b", "ci"))
        pass_time(world, MINUTE_MS)
        limit = next(it for it in shown(world) if it.kind == kind)
        assert (limit.name, limit.used, limit.most) == (name, 1, 1)
        assert limit.used_by == {"ml": 1}
        assert [it.job for it in limit.waiting] == ["b-2"]


def test_after_a_restart_the_queue_is_the_same() -> None:
    world = world_of(ML, CI, minutes=60)
    come(world, whole("a", "ml"), whole("b", "ml"), whole("c", "ci"), whole("d", "ml"))
    pass_time(world, MINUTE_MS)
    before = shown(world)
    world.restart()
    pass_time(world, MINUTE_MS)
    assert shown(world) == before
    assert [it.job for it in before[0].waiting] == ["b-2", "c-3", "d-4"]


def test_an_undivided_cluster_shares_nothing() -> None:
    world = world_of(ML, catalog=ONE)
    come(world, whole("a", "ml"), whole("b", "ml"))
    assert shown(world) == []


def test_offerings_that_one_partition_alone_sells_are_not_shared() -> None:
    alone = replace(CI, offers=replace(CI.offers, families=frozenset({"other"})))
    world = world_of(ML, alone, minutes=60)
    come(world, whole("a", "ml"))
    pass_time(world, 3 * MINUTE_MS)
    assert shown(world) == []
