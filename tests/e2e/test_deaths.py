"""Whatever dies, nothing runs twice at a time, nothing is lost, nothing healthy restarts."""

from __future__ import annotations

import json
import os
import signal

import psutil
import pytest

from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import Cluster, Line, until
from tests.e2e.conftest import Clusters
from tests.fakes.paths import PYTHON

ONE_TYPE = {"types": {"e2e.small": {"cpus": 2, "memory": "4GiB", "price": "$0.10/h", "limit": 2}}}


def attempts(lines: list[Line]) -> list[int]:
    """Attempts whose program came to run, in order."""
    return [line.attempt for line in lines if line.event == "start"]


def alone(lines: list[Line]) -> bool:
    """Whether the task never ran twice at a time: attempts follow each other, in lock and line."""
    order = [line.attempt for line in lines]
    return order == sorted(order) and not any(line.event == "overlap" for line in lines)


def resumed(lines: list[Line], attempt: int) -> bool:
    """Whether an attempt began where the one before it had made its last checkpoints.

    What was published in the last moments before a death may not have been uploaded any more; it
    may also have been, a moment before the program could note it.
    """
    start = next(line for line in lines if line.event == "start" and line.attempt == attempt)
    before = lines[: lines.index(start)]
    noted = {line.step for line in before if line.event == "checkpoint"}
    return start.step > 0 and start.step in noted


@pytest.mark.long
def test_tasks_outlive_their_agent(cluster: Cluster) -> None:
    job = cluster.submit("steady")
    cluster.until_running(job)
    pid = cluster.lines(job)[0].pid
    (agent,) = cluster.processes_of(cluster.task(job).instance, "eva_worker.agent")

    agent.kill()

    def another() -> list[psutil.Process]:
        found = cluster.processes_of(cluster.task(job).instance, "eva_worker.agent")
        return [process for process in found if process.pid != agent.pid]

    until(another, "the supervisor starts another agent")
    steps = cluster.task(job).steps
    until(lambda: cluster.task(job).steps > steps, "the new agent tells of the task's progress")
    cluster.finish(job)
    cluster.until_ended(job)
    assert cluster.job(job).exit_code == 0
    assert {line.pid for line in cluster.lines(job)} == {pid}
    assert attempts(cluster.lines(job)) == [1]
    assert cluster.job(job).failures == 0


@pytest.mark.explore
def test_a_dead_instance_is_replaced_once_the_cloud_says_it_is_gone(cluster: Cluster) -> None:
    job = cluster.submit("unlucky")
    cluster.until_running(job)
    until(lambda: cluster.task(job).generation >= 2, "a checkpoint is stored")
    first = cluster.task(job).instance
    host = cluster.records()[first].pid
    assert host is not None

    os.kill(host, signal.SIGKILL)

    until(lambda: cluster.task(job).attempt == 2, "a second attempt")
    cluster.until_running(job)
    second = cluster.task(job).instance
    cluster.finish(job)
    cluster.until_ended(job)
    lines = cluster.lines(job)
    assert second != first
    assert attempts(lines) == [1, 2]
    assert alone(lines)
    assert resumed(lines, 2)
    gone_ms = cluster.records()[first].gone_ms
    assert gone_ms is not None
    assert min(line.at_ms for line in lines if line.attempt == 2) >= gone_ms
    assert cluster.job(job).failures == 0, "the task did nothing wrong"
    cluster.until_empty()
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)


@pytest.mark.long
def test_a_silent_instance_stores_its_tasks_before_they_start_elsewhere(
    make_cluster: Clusters,
) -> None:
    # Nothing moves by itself: the large job's instance has room that only waiting tasks may take.
    options = {"full": False, "partial": False, "round_gap_s": None}
    keep = {"policy": {"name": "eva_published", "options": options}}
    cluster = make_cluster(
        settings={"lost_worker_timeout": "1s", **keep}, catalog={"only": ["c7i"]}
    )
    job = cluster.submit("cut-off")
    cluster.until_running(job)
    roomy = cluster.submit("roomy", resources={"cpus": 5, "memory": "8GiB"})
    cluster.until_running(roomy)
    until(lambda: cluster.task(job).generation, "a checkpoint is stored")
    first = cluster.task(job).instance
    (agent,) = cluster.processes_of(first, "eva_worker.agent")
    host = cluster.records()[first].pid
    assert host is not None

    os.kill(host, signal.SIGSTOP)  # it is slow to switch off
    agent.suspend()  # connections stay open, the task runs on

    until(lambda: cluster.task(job).attempt == 2, "a second attempt")
    cluster.until_running(job)
    assert cluster.task(job).instance == cluster.task(roomy).instance
    cluster.finish(job, roomy)
    cluster.until_ended(job, roomy)
    lines = cluster.lines(job)
    assert attempts(lines) == [1, 2]
    assert alone(lines)
    assert resumed(lines, 2)
    steps = [[it.step for it in lines if it.attempt == attempt] for attempt in (1, 2)]
    assert steps[1][0] == steps[0][-1], "a step is lost"
    until(lambda: cluster.records()[first].gone_ms, "the cloud has seen it go")
    assert cluster.job(job).failures == 0, "the task did nothing wrong"


@pytest.mark.long
def test_what_finished_unseen_is_not_done_again_on_another_instance(
    make_cluster: Clusters,
) -> None:
    cluster = make_cluster(settings={"lost_worker_timeout": "1s"}, catalog=ONE_TYPE)
    job = cluster.submit("unseen", run=f"{PYTHON} counter.py && echo over")
    cluster.until_running(job)
    instance = cluster.task(job).instance
    (agent,) = cluster.processes_of(instance, "eva_worker.agent")
    supervisor = agent.parent()
    assert supervisor is not None

    # Nobody sees its end, and nobody is there to tell of it: the instance is given up.
    supervisor.suspend()
    agent.kill()
    cluster.kill()
    cluster.finish(job)
    until(lambda: cluster.lines(job, event="end"), "the task ends")
    exits = cluster.state_dir / "cloud" / instance / "disk" / "runtime" / job / "0" / "0001"
    until((exits / "exit.json").exists, "its end is on disk")
    cluster.start()

    cluster.until_ended(job)
    cluster.until_empty()
    assert cluster.instances()[instance].reason.startswith("its worker has been silent")
    assert attempts(cluster.lines(job)) == [1]
    assert cluster.task(job).attempt == 1
    assert b"".join(cluster.client.logs(job)).endswith(b"over\n")


@pytest.mark.parametrize("end", ["killed", pytest.param("stopped", marks=pytest.mark.explore)])
def test_tasks_outlive_the_master(make_cluster: Clusters, end: str) -> None:
    command = "up" if end == "killed" else "master"
    cluster = make_cluster(command=command, catalog={**ONE_TYPE, "only": ["e2e"]})
    going_on, ending = cluster.submit("going-on"), cluster.submit("ending")
    cluster.until_running(going_on, ending)
    queued = cluster.submit("queued")
    until(lambda: cluster.task(queued).waiting_for, "the third job is told why it waits")
    pids = {job: cluster.lines(job)[0].pid for job in (going_on, ending)}
    machines = {name: record.pid for name, record in cluster.records().items()}

    if end == "killed":
        cluster.kill()
    else:
        cluster.stop_master()
    cluster.finish(ending)
    until(lambda: cluster.lines(ending, event="end"), "one task ends while there is no master")
    made = len(cluster.lines(going_on))
    until(lambda: len(cluster.lines(going_on)) > made + 5, "the other one goes on")
    assert {name: record.pid for name, record in cluster.records().items()} == machines
    cluster.start()

    assert [job.id for job in cluster.client.jobs(ended=True)] == [queued, ending, going_on]
    cluster.until_ended(ending)
    until(lambda: cluster.task(going_on).rate > 0, "the throughput of the other one arrives")
    cluster.until_running(queued)
    cluster.finish(going_on, queued)
    cluster.until_ended(going_on, queued)
    for job in (going_on, ending, queued):
        assert attempts(cluster.lines(job)) == [1]
        assert cluster.job(job).failures == 0
    for job, pid in pids.items():
        assert {line.pid for line in cluster.lines(job)} == {pid}, "was restarted"
    cluster.until_empty()
    assert cluster.records().keys() == cluster.instances().keys()
    assert {record.attempt for record in cluster.records().values()} == {1}
    check_bill(cluster)
    cluster.stop_master()
    check_accounts(cluster)


@pytest.mark.long
def test_a_launch_is_neither_lost_nor_repeated(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings={"local": {"launch_delay": "2s"}})
    job = cluster.submit("early")

    cluster.kill()  # while the launch is decided, asked for or under way
    cluster.start()

    cluster.until_running(job)
    cluster.finish(job)
    cluster.until_ended(job)
    cluster.until_empty()
    assert attempts(cluster.lines(job)) == [1]
    assert len(cluster.records()) == len(cluster.instances()) == 1


def stored(cluster: Cluster, job: str, index: int) -> set[str]:
    """The complete checkpoint generations of a task."""
    checkpoints = cluster.state_dir / "objects" / "jobs" / job / str(index) / "checkpoints"
    return {manifest.parent.name for manifest in checkpoints.glob("*/manifest.json")}


@pytest.mark.explore
def test_a_gang_restarts_whole(cluster: Cluster) -> None:
    job = cluster.submit("gang", tasks=2, retries=1)
    cluster.until_running(job)
    assert [task.attempt for task in cluster.job(job).tasks] == [1, 1]
    until(lambda: stored(cluster, job, 0) & stored(cluster, job, 1), "both store a generation")

    os.kill(cluster.lines(job, 0)[0].pid, signal.SIGKILL)

    until(lambda: [task.attempt for task in cluster.job(job).tasks] == [2, 2], "a second attempt")
    cluster.until_running(job)
    origins = {json.loads(row[4])["resume"] for row in cluster.journal_rows()["task_runs"]}
    (generation,) = origins
    assert generation > 0
    cluster.finish(job)
    cluster.until_ended(job)
    assert cluster.job(job).failures == 1
    for index in (0, 1):
        lines = cluster.lines(job, index)
        assert attempts(lines) == [1, 2]
        assert alone(lines)
        assert resumed(lines, 2)
    last = [max(it.at_ms for it in cluster.lines(job, i) if it.attempt == 1) for i in (0, 1)]
    first = [min(it.at_ms for it in cluster.lines(job, i) if it.attempt == 2) for i in (0, 1)]
    assert max(last) <= min(first), "a member started before the other had ended"


@pytest.mark.long
@pytest.mark.waits
def test_ending_the_cluster_ends_everything_and_jobs_go_on_later(cluster: Cluster) -> None:
    job = cluster.submit("patient")
    cluster.until_running(job)
    stored = until(lambda: cluster.task(job).generation, "a checkpoint is stored")

    agent = cluster.processes_of(cluster.task(job).instance, "eva_worker.agent")
    agent[0].suspend()  # What hangs is woken to store what it has.
    cluster.stop()

    assert not cluster.processes()
    assert all(record.gone_ms is not None for record in cluster.records().values())
    cluster.start()
    cluster.until_running(job)
    assert cluster.task(job).generation >= stored
    cluster.finish(job)
    cluster.until_ended(job)
    lines = cluster.lines(job)
    assert attempts(lines) == [1, 2]
    assert alone(lines)
    assert resumed(lines, 2)
    last = [line.step for line in lines if line.attempt == 1][-1]
    assert next(line.step for line in lines if line.attempt == 2) == last, "a step is lost"
    said = b"".join(cluster.client.logs(job)).decode().splitlines()
    assert said == ["attempt 1 starts at step 0", f"attempt 2 starts at step {last}"]
    assert cluster.job(job).failures == 0
    cluster.until_empty()
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)


def test_whoever_asks_twice_does_not_wait_for_tasks(cluster: Cluster) -> None:
    stubborn = 'trap "" TERM; touch "$RECORD/up"; while :; do sleep 0.1; done'
    job = cluster.submit("stubborn", run=stubborn, grace_period="10m", throughput=None)
    until(lambda: cluster.task(job).state == "running", "it runs")
    until((cluster.home / "record" / "up").exists, "it has set its trap")

    cluster.interrupt()
    until(lambda: "Stopping 1 task" in cluster.said(), "it is told what is waited for")
    cluster.stop()

    assert "Stopping at once" in cluster.said()
    assert not cluster.processes()
