"""An elastic gang grows and shrinks with real processes, and loses no step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import PROGRAMS, Cluster, until
from tests.e2e.conftest import Clusters
from tests.fakes.paths import PYTHON

BOX = {"e2e.box": {"cpus": 4, "memory": "8GiB", "price": "$0.40/h", "limit": 1}}
EXAMPLE = Path(__file__).parents[3] / "examples" / "ring_digits"
STEPS = 100_000
"""More than the test takes."""


def running(cluster: Cluster, job: str) -> list[int]:
    return [task.index for task in cluster.job(job).tasks if task.state == "running"]


def until_size(cluster: Cluster, job: str, size: int) -> None:
    """Wait until so many members run, and have made steps."""
    until(lambda: running(cluster, job) == list(range(size)), f"{job} has {size} members")
    for index in range(size):
        cluster.until_steps(job, index)


def told(cluster: Cluster, job: str, index: int) -> list[str]:
    """What each attempt of a member was told of the number of members."""
    text = b"".join(cluster.client.logs(job, task=index)).decode()
    return [line.removeprefix("nodes ") for line in text.splitlines() if line.startswith("nodes ")]


@pytest.mark.waits
@pytest.mark.explore
def test_a_gang_grows_into_room_that_is_paid_for_and_gives_it_up(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings={"round_period": "2s"}, catalog={"types": BOX, "only": ["e2e"]})
    files = cluster.home / "files"
    shutil.copytree(EXAMPLE, files)
    for name in ("gang.py", "record.py"):
        shutil.copy(PROGRAMS / name, files)
    document = yaml.safe_load((EXAMPLE / "elastic.yaml").read_text())
    filler = cluster.submit("filler", resources={"cpus": 3, "memory": "1GiB"})
    cluster.until_running(filler)
    gang = cluster.submit(
        "gang",
        workdir=files,
        run=f'echo "nodes $NNODES"; exec {PYTHON} gang.py',
        tasks=document["tasks"],
        resources={"cpus": 1, "memory": "1GiB"},
        envs={"STEPS": str(STEPS), "HIDDEN": "16", "BATCH": "64", "STEP_S": "0.3"},
    )
    until_size(cluster, gang, 1)
    shown = json.loads(cluster.eva("status", gang, "--json").stdout)
    assert "rests: its gang has 1 of 1 to 4 members" in shown["tasks"][3]["waiting_for"]
    assert "rests: its gang has 1 of 1 to 4 members" in cluster.eva("explain", gang).stdout

    cluster.finish(filler)
    until_size(cluster, gang, 4)
    assert {task.attempt for task in cluster.job(gang).tasks} == {2}

    other = cluster.submit("other", resources={"cpus": 2, "memory": "1GiB"})
    until_size(cluster, gang, 2)
    cluster.until_running(other)
    assert "others wait for room" in cluster.eva("ls").stdout
    assert [task.state for task in cluster.job(gang).tasks[2:]] == ["waiting"] * 2

    assert [told(cluster, gang, index) for index in range(4)] == [
        ["1", "4", "2"],
        ["4", "2"],
        ["4"],
        ["4"],
    ]
    assert cluster.job(gang).failures == 0
    assert cluster.eva("cancel", "--yes", gang).returncode == 0
    cluster.until_ended(gang, state="cancelled")
    steps = [line.step for line in cluster.lines(gang) if line.event == "step"]
    assert steps == list(range(1, len(steps) + 1)), "nothing is lost, and nothing done twice"
    for index in (1, 2, 3):
        own = [line.step for line in cluster.lines(gang, index) if line.event == "step"]
        assert set(own) <= set(steps)
        assert not [line for line in cluster.lines(gang, index) if line.event == "overlap"]
    cluster.finish(other)
    cluster.until_ended(other)
    cluster.until_empty()
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)
