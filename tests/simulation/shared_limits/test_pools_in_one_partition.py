"""A pool of short jobs in one partition takes turns at a shared limit like any other task."""

from __future__ import annotations

from typing import Any

import pytest

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Limits
from eva_master.model.fleet.partitions import Partition, ShortJobs
from eva_master.model.job import JobSpec, Latency
from eva_master.packing.parts.splitter import Splitter
from eva_master.ports import Policy
from eva_policies.cloudcoaster.config import Config
from tests.simulation.shared_limits.turns import (
    MINUTE_MS,
    ONE,
    TWO,
    UNLIMITED,
    come,
    pass_time,
    whole,
    world_of,
)

SHORT = ShortJobs(90_000)
QUICK, SLOW = Partition("quick", short=SHORT), Partition("slow", default=True)


def front() -> Policy:
    """A short pool in front of the default policy."""
    kinds = policies()
    pool = kinds["cloudcoaster"].build(Config(slots=4, hold_s=20))
    eva = kinds["eva"].build(kinds["eva"].config())
    return Splitter.of_short(pool, eva, SHORT.below_ms, shares=True)


def world(*parts: Partition, long: dict[str, float] | None = None, **more: Any) -> SimulatedCluster:
    lasting = {f"s{number}": 1.0 for number in range(9)} | (long or {})
    return world_of(*parts, policy="eva", policies={"quick": front()}, long=lasting, **more)


def short(name: str, **more: Any) -> JobSpec:
    return whole(name, "quick", latency=Latency.SHORT, minutes=1, **more)


def order(cluster: SimulatedCluster) -> list[str]:
    """Names of jobs in the order in which they began, once all have ended; a pool stands on."""
    jobs = cluster.state.jobs
    assert cluster.run(lambda: not cluster.state.active, limit_ms=60 * MINUTE_MS), "all end"
    return [job.spec.name for job in sorted(jobs.values(), key=lambda job: job.started_ms or 0)]


PARTS = pytest.mark.parametrize("parts", [(QUICK, SLOW), (SLOW, QUICK)], ids=["quick", "slow"])
LIMITS = pytest.mark.parametrize(
    "limited",
    [{"catalog": ONE}, {"catalog": UNLIMITED, "limits": Limits(instances=1)}],
    ids=["offering", "instances"],
)


@PARTS
@LIMITS
def test_short_and_other_jobs_begin_in_the_order_in_which_they_came(
    parts: tuple[Partition, ...], limited: dict[str, Any]
) -> None:
    cluster = world(*parts, **limited)
    come(cluster, short("s0"), whole("a", "slow"), short("s1"), short("s2"), whole("b", "slow"))
    come(cluster, short("s3"))
    assert order(cluster) == ["s0", "a", "s1", "s2", "b", "s3"]


@PARTS
def test_the_most_urgent_is_next_on_either_side(parts: tuple[Partition, ...]) -> None:
    cluster = world(*parts, catalog=ONE)
    come(cluster, whole("a", "slow"), short("s0"), whole("b", "slow"))
    come(cluster, short("s1", priority=5), whole("c", "slow", priority=9))
    assert order(cluster) == ["a", "c", "s1", "s0", "b"]


@PARTS
def test_a_pool_leaves_one_of_two_to_another_partition(parts: tuple[Partition, ...]) -> None:
    cluster = world(*parts, catalog=TWO, long={"a": 3})
    come(cluster, short("s0"), short("s1"))
    pass_time(cluster, 4 * MINUTE_MS)
    come(cluster, whole("a", "slow"), short("s2"), whole("b", "slow"), short("s3"))
    # The other member is there, and a new instance boots for the first of the other partition.
    assert order(cluster) == ["s0", "s1", "s2", "a", "b", "s3"]


@PARTS
def test_a_restart_of_the_master_keeps_the_turns_beside_a_pool(
    parts: tuple[Partition, ...],
) -> None:
    cluster = world(*parts, catalog=ONE)
    come(cluster, short("s0"), whole("a", "slow"), short("s1"), whole("b", "slow"), short("s2"))
    pass_time(cluster, 2 * MINUTE_MS)
    cluster.restart()
    assert order(cluster) == ["s0", "a", "s1", "b", "s2"]


@PARTS
def test_the_cloud_refuses_what_a_pool_and_others_want(parts: tuple[Partition, ...]) -> None:
    cluster = world(*parts, catalog=UNLIMITED)
    cluster.cloud.sold_out = lambda _: len(cluster.cloud.existing()) >= 1
    come(cluster, short("s0"), whole("a", "slow"), short("s1"), whole("b", "slow"), short("s2"))
    assert order(cluster) == ["s0", "a", "s1", "b", "s2"]
