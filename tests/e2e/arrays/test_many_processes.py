"""An array of many real processes on one machine, each of which runs once.

They are 2,000, in `make explore`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters

TASKS = 2_000
AT_A_TIME = 32
STEP = 100
"""So many must end in the time that anything is waited for: who is slow is not stuck."""
BOX = {"e2e.box": {"cpus": 16, "memory": "16GiB", "price": "$0.10/h", "limit": 2}}


def done(record: Path) -> int:
    return len(record.read_text().split()) if record.exists() else 0


@pytest.mark.explore
@pytest.mark.waits
def test_many_processes_each_run_once(make_cluster: Clusters) -> None:
    cluster: Cluster = make_cluster(
        catalog={"types": BOX, "only": ["e2e"]}, settings={"round_min_interval": "1s"}
    )
    record = cluster.home / "record" / "done"
    job = cluster.client.submit(
        f"""
        name: many
        kind: array
        tasks: {TASKS}
        concurrency: {AT_A_TIME}
        resources: {{cpus: 1, memory: 64MiB}}
        reports_steps: false
        duration: 1s
        run: echo "$EVA_TASK_INDEX" >>"{record}"
        """,
        file_name="many.yaml",
    ).job_id
    for enough in range(STEP, TASKS + 1, STEP):
        until(lambda enough=enough: done(record) >= enough, f"{enough} tasks have run")
    cluster.until_ended(job)
    assert sorted(map(int, record.read_text().split())) == list(range(TASKS))
    cluster.until_empty()
