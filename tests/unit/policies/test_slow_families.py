"""A cheap family on which a task crawls is no bargain, under any policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.runs import named_policy
from eva_master.model.job import TaskSpec
from eva_wire.values.ids import MILLION, Family
from tests.fakes.snapshots import Cluster, offer, task

GPU = offer("p3.2xlarge", (1, 8, 61), 3.06, family="p3")
CPU = offer("c7i.2xlarge", (0, 8, 16), 0.357, family="c7i")
POLICIES = ("eva", "eva_published", "no_packing", "stratus", "synergy", "owl")


def either(p3: float, c7i: float) -> TaskSpec:
    """Runs with a GPU or on CPUs alone, at so many iterations per second."""
    rates = (Family("c7i"), round(c7i * MILLION)), (Family("p3"), round(p3 * MILLION))
    return replace(task("w", p3=(1, 4, 10), c7i=(0, 8, 10)), throughput=rates)


def bought(policy: str, *specs: TaskSpec) -> set[str]:
    cluster = Cluster(GPU, CPU)
    for number, spec in enumerate(specs):
        cluster.job(f"j{number}", spec)
    plan, _ = named_policy(policy)[0].plan(cluster.snapshot(), None)
    return {launch.offering.type.name for launch in plan.launches}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_task_goes_where_its_iterations_are_cheap(policy: str) -> None:
    # A million iterations: 2.83 $ in 56 minutes, or 9.92 $ in 28 hours.
    assert bought(policy, either(300, 10)) == {"p3.2xlarge"}
    # At a fifth of the speed, CPUs are cheaper: 0.357 * 5 = 1.785 $ for what costs 3.06 $.
    assert bought(policy, either(50, 10)) == {"c7i.2xlarge"}


@pytest.mark.parametrize("policy", POLICIES)
def test_so_does_a_gang_whose_members_wait_for_each_other(policy: str) -> None:
    cluster = Cluster(GPU, CPU).job("g", either(300, 10), either(300, 10))
    plan, _ = named_policy(policy)[0].plan(cluster.snapshot(), None)
    assert {launch.offering.type.name for launch in plan.launches} == {"p3.2xlarge"}
