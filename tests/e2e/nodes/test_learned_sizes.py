"""Two arrays on an owned node: pilots tell which one has less to do, and it goes first."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.nodes.test_fixed_nodes import Machine
from tests.e2e.test_deaths import ONE_TYPE

TASKS = 30
NODE = {
    "type": "own.small",
    "capacity": {"cpus": 2, "memory": "1GiB"},
    "usd_per_hour": 0,
    "fence_after": "1m",
}
"""It has room for four tasks."""
SLOT = {"cpus": 0.5, "memory": "128MiB"}
FINE = {"first_queue_s": 1, "growth": 2}
"""Queues for jobs of some seconds: each takes twice as much as the one before."""


def _submit(cluster: Cluster, name: str, run: str) -> str:
    keys = {"name": name, "kind": "array", "tasks": TASKS, "run": run, "resources": SLOT}
    text = yaml.safe_dump({**keys, "reports_steps": False})
    return cluster.client.submit(text, file_name=f"{name}.yaml").job_id


def _done(cluster: Cluster, job: str) -> int:
    return sum(task.state == "succeeded" for task in cluster.job(job).tasks)


@pytest.mark.waits
@pytest.mark.parametrize(
    ("policy", "estimates"),
    [
        pytest.param(
            {"name": "slearn", "preset": "published", "options": FINE},
            "pilots",
            marks=pytest.mark.explore,
            id="published",
        ),
        pytest.param({"name": "slearn", "options": FINE}, "posterior", id="default"),
    ],
)
@pytest.mark.explore
def test_the_array_with_less_to_do_is_done_first_though_it_came_later(
    make_cluster: Clusters, policy: dict[str, Any], estimates: str
) -> None:
    cluster = make_cluster(
        catalog=ONE_TYPE,
        settings={"nodes": {"rack1": NODE}, "policy": policy, "estimates": estimates},
    )
    token = cluster.home / "rack1.token"
    assert cluster.eva("node", "token", "rack1", "--out", str(token)).returncode == 0
    machine = Machine(cluster, token)
    try:
        until(lambda: cluster.instances().get("rack1"), "rack1 joins")
        long = _submit(cluster, "long", "sleep 1.5")
        short = _submit(cluster, "short", "true")
        until(lambda: _done(cluster, short), "a pilot has ended")
        waits = cluster.eva("explain", short).stdout
        assert "in line for room that becomes free in pool nodes" in " ".join(waits.split())
        cluster.until_ended(short)
        assert _done(cluster, long) < TASKS, "the one that came first is not done yet"
        cluster.until_ended(long)
        assert not cluster.records(), "nothing was launched"
        places = {task.instance for job in (long, short) for task in cluster.job(job).tasks}
        assert places <= {"rack1", ""}
        learned = json.loads(cluster.eva("estimates", "--json").stdout)
        assert learned["estimates"] == estimates
        medians = {
            it["value"]: it["median_ms"] for it in learned["times"] if it["feature"] == "name"
        }
        assert medians["short"] < medians["long"] / 2
    finally:
        machine.close()
