"""Arrays with real processes: each task runs once, and no more at a time than may."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import Clusters

BOX = {"e2e.box": {"cpus": 8, "memory": "16GiB", "price": "$0.10/h", "limit": 1}}
EXAMPLE = Path(__file__).parents[3] / "examples" / "array"


def submitted(cluster: Cluster, record: Path) -> str:
    """The example, each task of which writes down when it begins and ends; its id."""
    document = yaml.safe_load((EXAMPLE / "primes.yaml").read_text())
    say = f'echo "$EVA_TASK_INDEX" >>{shlex.quote(str(record))}'
    run = f"{say}; {document['run']} && {say}"
    files = cluster.client.upload(EXAMPLE)
    text = yaml.safe_dump({**{k: v for k, v in document.items() if k != "workdir"}, "run": run})
    return cluster.client.submit(text, file_name="primes.yaml", workdir=files).job_id


def most_at_a_time(lines: list[str]) -> int:
    begun: set[str] = set()
    most = 0
    for line in lines:
        begun ^= {line}
        most = max(most, len(begun))
    return most


def test_the_tasks_of_an_array_run_in_turn(make_cluster: Clusters) -> None:
    cluster = make_cluster(catalog={"types": BOX, "only": ["e2e"]})
    record = cluster.home / "record" / "order"
    job = submitted(cluster, record)
    cluster.until_ended(job)
    shown = cluster.client.job(job)
    assert shown.state == "succeeded"
    lines = record.read_text().split()
    assert sorted(lines, key=int) == [str(index) for index in range(12) for _ in range(2)]
    assert 1 <= most_at_a_time(lines) <= 4
    assert [task.attempt for task in shown.tasks] == [1] * 12
    cluster.until_empty()
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)
