"""An array of short tasks with real processes, in front of the default policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.accounts import check_accounts
from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters

EXAMPLE = Path(__file__).parents[3] / "examples" / "short_tasks"
BOX = {"e2e.box": {"cpus": 4, "memory": "8GiB", "price": "$0.10/h"}}

NEXT = {
    "name": "next",
    "kind": "array",
    "tasks": 1,
    "duration": "3h",
    "latency": "short",
    "run": "true",
    "resources": {"cpus": 1, "memory": "1GiB"},
    "reports_steps": False,
}


def _submitted(cluster: Cluster, record: Path) -> str:
    """The example, each task of which writes down that it ran; its id."""
    document = yaml.safe_load((EXAMPLE / "echoes.yaml").read_text())
    document |= {"run": f'{document["run"]}; echo "$EVA_TASK_INDEX" >>{record}', "spot": "never"}
    return cluster.client.submit(yaml.safe_dump(document), file_name="echoes.yaml").job_id


def _members(cluster: Cluster) -> list[str]:
    shown = json.loads(cluster.eva("nodes", "--json").stdout)["instances"]
    return [it["id"] for it in shown if it["pool"] == "short.steady"]


@pytest.mark.waits
def test_short_tasks_take_the_room_of_a_pool_of_which_a_member_dies(
    make_cluster: Clusters,
) -> None:
    settings = yaml.safe_load((EXAMPLE / "master.yaml").read_text())
    # What stands is on demand here: two boxes of four slots.
    settings["policy"]["short"]["options"] |= {"transient_share_ppm": 0}
    cluster = make_cluster(settings=settings, catalog={"types": BOX, "only": ["e2e"]})
    record = cluster.home / "record" / "done"
    job = _submitted(cluster, record)
    long = cluster.submit("long", resources={"cpus": 2, "memory": "1GiB"})

    def done() -> list[str]:
        return record.read_text().split() if record.exists() else []

    until(lambda: len(done()) >= 20, "twenty tasks are done")
    assert "in line for room in pools short.steady" in cluster.eva("status", job).stdout
    why = (
        "it counts as short: its tasks are expected to take 2 s, and short ones take less than 90 s"
    )
    assert why in " ".join(cluster.eva("explain", job).stdout.split())
    until(lambda: len(_members(cluster)) == 2, "both boxes are bought")
    members = _members(cluster)
    room = "room for short tasks that no cloud takes back: 2 instances for $0.2000 per hour"
    # A round says so; the last may have been before the second was bought.
    until(lambda: room in cluster.eva("explain", "pools").stdout, "the pool is explained")
    assert "tasks wait, " in cluster.eva("explain", "pools").stdout
    cluster.until_running(long)
    assert cluster.task(long).instance not in members, "it is the other policy's"
    for process in cluster.processes_of(members[0]):
        process.kill()
    cluster.until_ended(job)
    shown = cluster.client.job(job)
    assert shown.state == "succeeded"
    assert sorted(set(map(int, done()))) == list(range(200)), "none was lost"
    # Those that ran on the member that died ran twice, and no others.
    assert len(done()) <= 200 + 4
    # The pool stays for the next; it goes when it is told to, or with the cluster.
    assert members[1] in _members(cluster)
    answer = cluster.client.submit(yaml.safe_dump(NEXT), file_name="next.yaml")
    (note,) = answer.notes
    assert note.startswith("it counts as short, since its job file says so; its tasks are expected")
    again = answer.job_id
    cluster.until_ended(again)
    assert cluster.client.job(again).tasks[0].state == "succeeded"
    cluster.finish(long)
    cluster.until_ended(long)
    cluster.stop()
    check_accounts(cluster)
