"""Kill matrix: the disk that tasks share with their agent's records is full."""

from __future__ import annotations

import os

import pytest

from tests.e2e.cluster import until
from tests.e2e.conftest import Hosts
from tests.e2e.kill_matrix import matrix
from tests.e2e.kill_matrix.matrix import TWO_EACH
from tests.fakes.hosts.cluster import HostCluster

pytestmark = [pytest.mark.hosts, pytest.mark.waits]

DISK_MIB = 32
# The programs themselves are to write nothing.
NO_CHECKPOINTS = {**matrix.SLOW, "CHECKPOINT_S": "3600"}
GREEDY = f'open("much", "wb").write(bytes({2 * DISK_MIB} << 20))'
WORDS = "the disk of its instance is full"
FULL = "No space left on device"


def said(cluster: HostCluster, instance: str) -> str:
    """What a worker has logged."""
    return (cluster.state_dir / "cloud" / instance / "worker.log").read_text()


def room_left(cluster: HostCluster, instance: str) -> int:
    """Bytes that programs can still write to an instance's disk."""
    disk = os.statvfs(cluster.inside(instance, cluster.disk(instance)))
    return disk.f_bavail * disk.f_frsize


@pytest.mark.explore
def test_tasks_that_need_no_room_end_as_ever(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH, disk_mib=DISK_MIB)
    ending, going_on = jobs = [
        matrix.submit(cluster, name, envs=NO_CHECKPOINTS) for name in ("ending", "going-on")
    ]
    cluster.until_running(*jobs)
    instance = cluster.task(ending).instance
    assert cluster.task(going_on).instance == instance
    agent = cluster.agent(instance)
    container = matrix.container_of(cluster, going_on)

    filler = cluster.fill(instance)
    cluster.finish(ending)

    until(lambda: cluster.lines(ending, event="end"), "one task ends")
    cluster.until_ended(ending)
    assert "the disk is full" in said(cluster, instance)
    steps = cluster.task(going_on).steps
    until(lambda: cluster.task(going_on).steps > steps, "the other one goes on")
    filler.unlink()
    assert cluster.agent(instance) == agent
    assert matrix.container_of(cluster, going_on) == container
    matrix.end(cluster, *jobs)
    matrix.check_undisturbed(cluster, *jobs)
    matrix.stop(cluster)


@pytest.mark.explore
def test_what_cannot_be_written_down_waits_for_room(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH, disk_mib=DISK_MIB)
    ending = matrix.submit(cluster, "ending", envs=NO_CHECKPOINTS)
    cluster.until_running(ending)
    instance = cluster.task(ending).instance
    agent = cluster.agent(instance)

    # Somebody takes the room that was set aside, too.
    cluster.inside(instance, cluster.disk(instance) / "reserve").unlink()
    filler = cluster.fill(instance)
    cluster.finish(ending)

    until(lambda: cluster.lines(ending, event="end"), "the task ends")
    until(lambda: FULL in said(cluster, instance), "the agent says what is wrong")
    late = matrix.submit(cluster, "late")
    turned_down = f"could not be started: the disk of its instance fails: {FULL}"
    until(lambda: turned_down in cluster.job(late).reason, "the next task is turned down")
    assert cluster.job(late).failures == 0
    assert cluster.job(ending).state == "running", "its end is not on disk"
    filler.unlink()
    cluster.until_ended(ending)
    cluster.until_running(late)
    assert cluster.agent(instance) == agent
    matrix.end(cluster, ending, late)
    matrix.check_undisturbed(cluster, ending)
    assert len(cluster.lines(late, event="start")) == len(cluster.records()) == 1
    matrix.stop(cluster)


@pytest.mark.long
def test_task_that_fills_the_disk(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH, disk_mib=DISK_MIB)
    beside = matrix.submit(cluster, "beside", envs=NO_CHECKPOINTS)
    cluster.until_running(beside)
    instance = cluster.task(beside).instance
    agent = cluster.agent(instance)

    greedy = cluster.submit("greedy", run=f"python3 -c '{GREEDY}'", retries=0, throughput=None)

    cluster.until_ended(greedy, state="failed")
    ended = cluster.job(greedy)
    assert ended.tasks[0].instance in ("", instance)
    assert f"exited with code {ended.exit_code}: {WORDS}" in ended.reason
    # What it had written went with it.
    until(lambda: room_left(cluster, instance) > DISK_MIB << 19, "there is room again")
    later = matrix.submit(cluster, "later")
    cluster.until_running(later)
    assert cluster.task(later).instance == instance
    assert cluster.agent(instance) == agent
    matrix.end(cluster, beside, later)
    matrix.check_undisturbed(cluster, beside, later)
    matrix.stop(cluster)
