"""Jobs of two tenants in batches, as published, with real processes and a master that dies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.tenants.test_lending import NODES, SETTINGS, _accounts, _nodes, _submit

PUBLISHED: dict[str, Any] = {
    **SETTINGS,
    # The master is away for less.
    "nodes": {name: {**node, "fence_after": "60s"} for name, node in SETTINGS["nodes"].items()},
    "policy": {
        "name": "astraea_published",
        "options": {"slot_s": 2, "horizon_slots": 16, "full_gpu_usd": 0.001},
    },
}
SHORT = {"total_steps": 80, "delays": {"checkpoint": "1s", "launch": "1s"}}
"""What is told of jobs: four seconds. They run until they are told to end."""


def _running(cluster: Cluster, jobs: list[str]) -> list[str]:
    return [job for job in jobs if cluster.task(job).state == "running"]


@pytest.mark.waits
@pytest.mark.explore
def test_batches_run_to_their_end_and_nobody_is_stopped(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings=PUBLISHED)
    with _nodes(cluster):
        jobs = [_submit(cluster, "bo", f"speech{n}", "$1/h", **SHORT) for n in range(3)]
        until(
            lambda: len(_running(cluster, jobs)) == len(NODES),
            "one of them has a quota of one, and they run",
        )
        cluster.kill()
        cluster.start()
        lender = _submit(cluster, "ana", "vision0", "$1/h", **SHORT)
        until(lambda: _running(cluster, [lender]) == [] and _running(cluster, jobs) == jobs, "stay")
        cluster.finish(*jobs)
        cluster.until_ended(*jobs)
        cluster.until_running(lender)
        cluster.finish(lender)
        cluster.until_ended(lender)
        for job in (*jobs, lender):
            lines = cluster.lines(job)
            assert len([it for it in lines if it.event == "start"]) == 1, f"{job} was stopped"
        sums = _accounts(cluster)
        assert (
            sums["speech"]["paid_micro_usd"]
            == sums["vision"]["earned_micro_usd"] + (sums["speech"]["earned_micro_usd"])
        )
        assert sums["vision"]["lent_gpu_hours"] > 0
