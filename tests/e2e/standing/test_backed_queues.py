"""Small arrays first on an instance that another policy buys, by real processes."""

from __future__ import annotations

import pytest
import yaml

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.test_deaths import ONE_TYPE

TASKS = 16
SLOT = {"cpus": 0.5, "memory": "128MiB"}
FINE = {"first_queue_s": 1, "growth": 2}
"""Queues for jobs of some seconds: each takes twice as much as the one before."""


def _submit(cluster: Cluster, name: str, run: str) -> str:
    keys = {"name": name, "kind": "array", "tasks": TASKS, "run": run, "resources": SLOT}
    text = yaml.safe_dump({**keys, "reports_steps": False, "pilots": 2})
    return cluster.client.submit(text, file_name=f"{name}.yaml").job_id


def _done(cluster: Cluster, job: str) -> int:
    return sum(task.state == "succeeded" for task in cluster.job(job).tasks)


@pytest.mark.waits
@pytest.mark.explore
def test_the_array_with_less_to_do_is_done_first_where_one_instance_is_allowed(
    make_cluster: Clusters,
) -> None:
    cluster = make_cluster(
        command="master",
        catalog=ONE_TYPE,
        settings={
            "policy": {"name": "slearn", "back": "eva", "options": FINE},
            "estimates": "posterior",
            "limits": {"instances": 1},
        },
    )
    long = _submit(cluster, "long", "sleep 2")
    until(lambda: _done(cluster, long) > 0, "a task of the one that came first has ended")
    short = _submit(cluster, "short", "sleep 0.2")

    def told() -> bool:
        reasons = {task.waiting_for for task in cluster.job(long).tasks}
        return any("of work: others come first" in it for it in reasons)

    until(told, "the one that came first is told why it waits")
    cluster.kill()
    cluster.start()
    cluster.until_ended(short)
    assert _done(cluster, long) < TASKS, "the one that came first is not done yet"
    cluster.until_ended(long)
    there = [it for it in cluster.instances().values() if it.state != "gone"]
    assert len(there) <= 1
    attempts = {task.attempt for job in (long, short) for task in cluster.job(job).tasks}
    assert attempts == {1}, "nobody was stopped for another one"
