"""Three machines of two types that join, and jobs that share them in turns, with real processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.nodes.test_fixed_nodes import Machine
from tests.e2e.test_deaths import ONE_TYPE, alone

EXAMPLE = Path(__file__).parents[3] / "examples" / "fleet"
NODES = yaml.safe_load((EXAMPLE / "master.yaml").read_text())["nodes"]
JOB = yaml.safe_load((EXAMPLE / "long.yaml").read_text())
NEED = JOB["resources_by_family"]


@contextlib.contextmanager
def fleet(make_cluster: Clusters, policy: dict[str, Any]) -> Iterator[Cluster]:
    """A master with the nodes of the example, and their workers."""
    cluster = make_cluster(
        catalog=ONE_TYPE,
        settings={"nodes": NODES, "policy": policy, "round_period": "5s"},
    )
    with contextlib.ExitStack() as machines:
        for name, node in NODES.items():
            token = cluster.home / f"{name}.token"
            assert cluster.eva("node", "token", name, "--out", str(token)).returncode == 0
            machine = Machine(cluster, token, name, node["type"])
            machines.callback(machine.close)
        for name in NODES:
            until(lambda name=name: cluster.instances().get(name), f"{name} joins")
        yield cluster


def submit(cluster: Cluster, name: str, steps: int, fast: int, slow: int) -> str:
    return cluster.submit(
        name,
        resources=None,
        resources_by_family=NEED,
        throughput={"fast": fast, "slow": slow},
        total_steps=steps,
    )


def each_step_once(cluster: Cluster, job: str) -> bool:
    steps = [line.step for line in cluster.lines(job, event="step")]
    return bool(steps) and steps == list(range(1, len(steps) + 1))


@pytest.mark.waits
def test_short_jobs_have_their_turn_and_the_long_ones_go_on_where_they_were(
    make_cluster: Clusters,
) -> None:
    policy = {"name": "hadar", "options": {"lease_s": 2}}
    with fleet(make_cluster, policy) as cluster:
        long = [submit(cluster, f"long{number}", 1_000_000, 20, 10) for number in range(3)]
        cluster.until_running(*long)
        short = [submit(cluster, f"short{number}", 200, 20, 18) for number in range(2)]
        # They are nearly as fast on the slower type, which is worth less, and there are two.
        cluster.until_running(*short)
        waits = next(job for job in long if cluster.job(job).state == "suspended")
        shown = cluster.job(waits)
        assert (shown.suspension.by, "others cost less" in shown.suspension.reason) == (
            "policy",
            True,
        )
        told = " ".join(cluster.eva("explain", waits).stdout.split())
        assert "its turn is expected within" in told
        cluster.finish(*short)
        cluster.until_ended(*short)
        cluster.until_running(*long)
        cluster.finish(*long)
        cluster.until_ended(*long)
        assert not cluster.records(), "nothing was launched"
        for job in (*long, *short):
            assert alone(cluster.lines(job))
            assert each_step_once(cluster, job), "nothing is lost, and nothing done twice"
            assert cluster.job(job).failures == 0
        moved = json.loads(cluster.eva("status", waits, "--json").stdout)
        assert moved["tasks"][0]["attempt"] >= 2


def test_six_jobs_end_on_three_nodes(make_cluster: Clusters) -> None:
    policy = {"name": "hadar", "preset": "published", "options": {"lease_s": 2}}
    with fleet(make_cluster, policy) as cluster:
        jobs = [submit(cluster, f"job{number}", 200, 20, 10) for number in range(6)]
        until(lambda: any(cluster.job(job).tasks[0].state == "running" for job in jobs), "one runs")
        cluster.finish(*jobs)
        cluster.until_ended(*jobs)
        assert not cluster.records(), "nothing was launched"
        for job in jobs:
            assert alone(cluster.lines(job))
            assert not cluster.lines(job, event="step") or each_step_once(cluster, job)
