"""A job with a deadline, with real processes: its spot instance is taken, and it is in time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eva_master.adapters.local.interruptions import interrupt
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import InstanceId
from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters

TYPES = {"e2e.small": {"cpus": 2, "memory": "4GiB", "price": "$0.10/h"}}
JOB: dict[str, Any] = {
    "spot": "allowed",
    "duration": "10m",
    "delays": {"checkpoint": "1s", "launch": "1s"},
    "resources": {"cpus": 2, "memory": "1GiB"},
}
# On a busy machine an instance may boot so slowly that no time is left to move once more.
SAID = {
    "on_demand": ("off spot instances", "kept off spot instances"),
    "stays": ("where it is and alone", "it is not moved any more"),
}


def purchases(cluster: Cluster) -> list[str]:
    """How instances were paid for, in order of launch."""
    return [cluster.records()[name].purchase for name in cluster.instances()]


def place(cluster: Cluster, job: str) -> str:
    """What the instance is that a job's task runs on; empty if it runs on none."""
    task = cluster.task(job)
    there = task.instance if task.state == "running" else ""
    return cluster.records()[there].purchase if there else ""


@pytest.mark.waits
def test_a_job_whose_spot_instance_is_taken_arrives_in_time_on_demand(
    make_cluster: Clusters,
) -> None:
    settings = {"local": {"launch_delay": "100ms", "spot": {"notice": "0s"}}}
    cluster = make_cluster(settings=settings, catalog={"types": TYPES, "only": ["e2e"]})
    with pytest.raises(EvaError, match="on demand the job takes 11m 0s"):
        cluster.submit("hurried", deadline={"within": "10m"}, **JOB)
    job = cluster.submit("job", deadline={"within": "665s"}, **JOB)
    cluster.until_running(job)
    assert place(cluster, job) == "spot"
    taken = set()

    def falls_back() -> bool:
        # For a while another spot instance will do; then there is no time to lose one more.
        there = cluster.task(job).instance
        if place(cluster, job) == "spot" and there not in taken:
            interrupt(cluster.state_dir / "cloud", InstanceId(there))
            taken.add(there)
        return place(cluster, job) == "on-demand"

    until(falls_back, "it falls back")
    shown = json.loads(cluster.eva("status", job, "--json").stdout)
    status, explanation = SAID[shown["buying"]["what"]]
    assert status in " ".join(cluster.eva("status", job).stdout.split())
    assert explanation in " ".join(cluster.eva("explain", job).stdout.split())
    cluster.until_steps(job)
    cluster.finish(job)
    cluster.until_ended(job)
    ended = json.loads(cluster.eva("status", job, "--json").stdout)
    assert ended["finished_ms"] < ended["buying"]["due_ms"]
    assert ended["failures"] == 0
    ran = ended["markets"]
    assert ran["interruptions"] == len(taken) > 0
    assert min(ran["spot_ms"], ran["other_ms"]) > 0
    assert 0 < ran["spot_micro_usd"] < min(ran["listed_micro_usd"], ended["cost_micro_usd"])
    steps = [line.step for line in cluster.lines(job) if line.event == "step"]
    assert sorted(set(steps)) == list(range(1, max(steps) + 1)), "no step is lost"
    assert not cluster.lines(job, event="overlap"), "it ran twice at a time"
