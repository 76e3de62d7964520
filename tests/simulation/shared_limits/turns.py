"""Clusters of two partitions that share a limit, and the order in which jobs begin there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.catalog import Catalog
from eva_master.model.events import Tick
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.job import JobSpec
from eva_master.ports import Policy
from tests.fakes.jobs import LARGE, job

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
ONE = (replace(LARGE, limit=1),)
TWO = (replace(LARGE, limit=2),)
UNLIMITED = (LARGE,)
ML, CI = Partition("ml", default=True), Partition("ci")
BOOT_MS = 70_000
ROUND_MS = 5_000


def world_of(
    *parts: Partition,
    catalog: Catalog = ONE,
    policy: str | Mapping[str, str] = "no_packing",
    minutes: float = 5,
    long: Mapping[str, float] | None = None,
    policies: Mapping[str, Policy] | None = None,
    **settings: Any,
) -> SimulatedCluster:
    """A cluster in which every task runs for some minutes; of `long` jobs for as long as stated."""
    lasting = long or {}
    named = {it.name: policy if isinstance(policy, str) else policy[it.name] for it in parts}
    return SimulatedCluster(
        catalog,
        {name: named_policy(it)[0] for name, it in named.items()} | dict(policies or {}),
        settings=Settings(partitions=Partitions(parts), round_gap_ms=1_000, **settings),
        work_of=lambda run: Work(round(lasting.get(run.rpartition("-")[0], minutes) * MINUTE_MS)),
    )


def come(world: SimulatedCluster, *specs: JobSpec, every_ms: int = 2_000) -> None:
    """Have jobs come one after the other."""
    for spec in specs:
        world.submit(spec)
        pass_time(world, every_ms)


def pass_time(world: SimulatedCluster, ms: int) -> None:
    """Let so much time pass."""
    end = world.timeline.now() + ms
    world.timeline.after(ms, lambda: world.inbox.post(Tick()))
    world.run(lambda: world.timeline.now() >= end)


def whole(name: str, partition: str, **more: Any) -> JobSpec:
    """A job of one task that takes a whole instance."""
    return job(name, 8, partition=partition, **more)


def order(world: SimulatedCluster) -> list[str]:
    """The names of jobs in the order in which they began, once all have ended."""
    assert world.run(world.quiet, limit_ms=DAY_MS), "all of them end"
    begun = {it.spec.name: it.started_ms for it in world.state.jobs.values()}
    return sorted(begun, key=lambda name: (begun[name], name))
