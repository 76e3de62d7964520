"""Tasks that wait for a limit or a budget are told its name, whatever the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.sections.building import build_backed, build_policy, build_splitter
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.fleet.partitions import (
    Budget,
    Partition,
    PartitionLimits,
    Partitions,
    ShortJobs,
)
from eva_master.model.job import TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy
from eva_master.model.tenants.tenancy import ANY_FAMILY
from eva_master.ports import Policy
from eva_wire.values.ids import Family, Millis, Price
from eva_wire.values.states import RunState
from tests.fakes.jobs import job

MINUTE_MS = 60_000
FAMILY = Family("g")
TYPE = InstanceType(
    "g.1", FAMILY, Resources(1, 4_000, 8_192), acquisition_ms=10_000, setup_ms=20_000
)


@dataclass(frozen=True)
class Limit:
    """A limit that one instance, or a little spending, exhausts; `word` names it."""

    word: str
    partition: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    offering: Mapping[str, Any] = field(default_factory=dict)
    pools: bool = True
    """Whether it holds for what is bought for pools and given away by lines."""


LIMITS = {
    "instances of the partition": Limit(
        "partitions.main.limits.instances", {"limits": PartitionLimits(instances=1)}
    ),
    "budget of an hour": Limit(
        "partitions.main.budget.usd_per_hour", {"budget": Budget(per_hour=250_000)}
    ),
    "budget of a month": Limit(
        "partitions.main.budget.usd_per_month", {"budget": Budget(per_month=1)}
    ),
    "instances": Limit("(limits.instances)", settings={"limits": Limits(instances=1)}),
    "instances of a user": Limit(
        "limits.instances_per_user",
        settings={"limits": Limits(instances_per_user=1)},
        pools=False,
    ),
    "quota of a tenant": Limit(
        "quota of t", settings={"tenancy": Tenancy(quotas={"t": ((ANY_FAMILY, 1),)})}
    ),
    "budget of a tenant": Limit(
        "usd_per_month", settings={"tenancy": Tenancy(budgets={"t": 1})}, pools=False
    ),
    "price limit": Limit("price_limit", settings={"price_limit_ppm": 500_000}, pools=False),
    "limit of an offering": Limit("limit of g.1", offering={"limit": 1}),
    "quota of the cloud": Limit(
        "the quota L-1 is full",
        offering={
            "unavailable_until": Millis(10**13),
            "why_unavailable": "the quota L-1 is full",
        },
    ),
}
BUYERS = (
    *("eva", "no_packing", "eva_published", "stratus", "owl", "synergy", "gavel", "tiresias"),
    *("cloudcoaster+eva", "slearn+eva", "slearn before eva"),
)
QUICK = ("eva", "no_packing", "cloudcoaster+eva", "slearn+eva")
CASES = [
    pytest.param(policy, limit, marks=() if policy in QUICK else pytest.mark.long)
    for policy in BUYERS
    for limit, known in LIMITS.items()
    if known.pools or policy != "cloudcoaster+eva"
]
"""Each policy with each limit; pools of cloudcoaster are bought for no user and no tenant."""
SHORT_MS = 90_000


def made(name: str) -> Policy:
    match name:
        case "slearn+eva":
            return build_backed(name, {"first": ["slearn", {}], "behind": ["eva", {}]})
        case "cloudcoaster+eva" | "slearn before eva":
            front = [name.partition("+")[0].partition(" ")[0], {}]
            return build_splitter(name, {"front": front, "back": ["eva", {}], "below_ms": SHORT_MS})
    return build_policy(name, {})


def reasons(policy: str, limit: Limit) -> tuple[set[str], int]:
    """The reasons of the tasks that wait after a while, and how many tasks wait."""
    short = ShortJobs(SHORT_MS) if "cloudcoaster" in policy or "before" in policy else None
    part = Partition("main", default=True, short=short, **limit.partition)
    world = SimulatedCluster(
        (Offering(TYPE, Price(200_000), **limit.offering),),
        made(policy),
        settings=Settings(partitions=Partitions((part,)), **limit.settings),
        work_of=lambda _: Work(30 * MINUTE_MS),
    )
    for at_min, names in ((0, "ab"), (5, "cd")):
        play(world, at_min)
        for name in names:
            spec = job(name, 4, minutes=1 if short else 30)
            task: TaskSpec = replace(spec.tasks[0], demand=((FAMILY, Resources(1, 4_000, 1_024)),))
            world.submit(replace(spec, tasks=(task,), tenant="t"))
    play(world, 12)
    found = [
        run.waiting_for
        for name in world.state.jobs
        for run in world.state.members(name)
        if run.state is RunState.WAITING and run.target is None
    ]
    return set(found), len(found)


def play(world: SimulatedCluster, until_min: int) -> None:
    until_ms = until_min * MINUTE_MS
    if until_ms:
        world.timeline.after(until_ms - world.timeline.now(), lambda: None)
        world.run(lambda: world.timeline.now() >= until_ms)


@pytest.mark.parametrize(("policy", "limit"), CASES)
def test_the_limit_is_named(policy: str, limit: str) -> None:
    known = LIMITS[limit]
    found, waiting = reasons(policy, known)
    assert waiting >= 2
    assert all(known.word in reason for reason in found), found
