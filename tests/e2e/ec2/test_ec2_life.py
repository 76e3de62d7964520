"""Jobs on instances that were bought from EC2's API, booted by their user data, and are gone."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml

from eva_master.app.demo.jobs import EXAMPLES, FIRST_WAVE, SECOND_WAVE, Submitter
from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import until
from tests.e2e.conftest import Ec2s
from tests.e2e.kill_matrix.matrix import check_steps, check_undisturbed
from tests.fakes.ec2.cluster import Ec2Cluster
from tests.fakes.ec2.machine import BLACK_BOX_PORT

pytestmark = pytest.mark.hosts

RUN = f"env EVA_BLACK_BOX=127.0.0.1:{BLACK_BOX_PORT} python3 counter.py && echo over"
DEMO = EXAMPLES / "demo"
SHORTER = 10
"""What the demo shows takes minutes; here its jobs are only to run."""


def running(cluster: Ec2Cluster, *jobs: str) -> None:
    """Wait until jobs run, and have a checkpoint stored."""
    for job in jobs:
        until(lambda job=job: cluster.task(job).generation, f"{job} runs")
    cluster.until_running(*jobs)


def end(cluster: Ec2Cluster, *jobs: str) -> None:
    """Have jobs finish; nothing is left, and the bill is the API's own record."""
    cluster.finish(*jobs)
    for job in jobs:
        until(lambda job=job: cluster.job(job).finished_ms, f"{job} ends")
    cluster.until_ended(*jobs)
    cluster.until_empty()
    check_bill(cluster)


def stop(cluster: Ec2Cluster) -> None:
    """End the master; its books add up."""
    cluster.stop_master()
    check_accounts(cluster)


def check_moved(cluster: Ec2Cluster, job: str, *stored: int) -> None:
    """A job went on elsewhere from its last checkpoint: no step is lost, none done twice.

    Args:
        cluster: Where.
        job: Which.
        stored: Generations that were known to be stored before something happened, one for each
            time that it did.
    """
    lines = cluster.lines(job)
    runs = [[it for it in lines if it.attempt == number] for number in range(1, len(stored) + 2)]
    assert lines == [line for run in runs for line in run]
    assert not any(line.event == "overlap" for line in lines)
    saved = 0
    for before, after, known in zip(runs, runs[1:], stored, strict=False):
        saved += len([it for it in before if it.event == "checkpoint"])
        assert saved >= known
        last = [it.step for it in before if it.event == "checkpoint"][-1]
        assert after[0].step == last == [it.step for it in before if it.event == "step"][-1]
    said = b"".join(cluster.client.logs(job)).decode()
    for run in runs:
        check_steps(run)
        assert f"attempt {run[0].attempt} starts at step {run[0].step}" in said
    assert lines[-1].event == "end"
    assert cluster.job(job).failures == 0
    assert said.endswith("over\n")


@pytest.mark.explore
@pytest.mark.waits
def test_the_demos_jobs_run_on_instances_that_boot_themselves(make_ec2: Ec2s) -> None:
    """One of each kind, files and programs as they are; they are shorter, as a variable says."""
    types = yaml.safe_load((DEMO / "catalog.yaml").read_text())["types"]
    # Larger types than the demo's cheapest: fewer boots.
    catalog = {"types": types, "only": ["c7i.2xlarge", "r7i.xlarge"]}
    cluster = make_ec2(settings={"profile": False}, catalog=catalog)
    kinds = {job.example: job for job in (*SECOND_WAVE, *FIRST_WAVE)}
    wave = tuple(
        replace(job, envs={**job.envs, "STEPS": str(int(job.envs["STEPS"]) // SHORTER)})
        for job in kinds.values()
    )
    submitter = Submitter(cluster.client)
    submitter.upload()
    submitter.submit(wave)
    jobs = {job.name: job for job in cluster.client.jobs(ended=True)}
    assert jobs.keys() == {job.name for job in wave}
    for name, job in jobs.items():
        until(lambda job=job: cluster.job(job.id).finished_ms, f"{name} ends")
    ids = [job.id for job in jobs.values()]
    cluster.until_ended(*ids)
    cluster.until_empty()
    check_bill(cluster)

    for job in wave:
        ended = cluster.job(jobs[job.name].id)
        assert ended.failures == 0
        for task in ended.tasks:
            assert task.steps == task.total_steps == int(job.envs["STEPS"])
        # Of a gang one speaks for all.
        stored = cluster.stored(f"jobs/{ended.id}/0/")
        assert {"logs", "outputs"} <= {key.split("/")[3] for key in stored}
        assert all(size for key, size in stored.items() if "/outputs/" in key)
    assert any("/checkpoints/" in key for key in cluster.stored("jobs/"))
    booted = [it for it in cluster.records().values() if it.up_ms is not None]
    assert len(booted) < len(wave), "they share instances"
    assert all(it.gone_ms is not None for it in booted)
    stop(cluster)


@pytest.mark.explore
@pytest.mark.waits
def test_an_instance_that_never_registers_is_replaced(make_ec2: Ec2s) -> None:
    """And the instances boot an image that the project's recipe has made."""
    # Five times what a boot takes here when nothing else is going on.
    cluster = make_ec2(settings={"register_timeout": "90s"}, image=True)
    cluster.hypervisor.lose_next()
    job = cluster.submit("one", run=RUN)
    running(cluster, job)
    first, second = sorted(cluster.records())
    assert cluster.task(job).instance == second
    assert cluster.records()[first].state == "terminated"
    assert "register" in cluster.instances()[first].reason
    end(cluster, job)
    check_undisturbed(cluster, job)
    stop(cluster)


@pytest.mark.long
def test_a_boot_that_fails_says_why_and_is_over(make_ec2: Ec2s) -> None:
    cluster = make_ec2(
        settings={"register_timeout": "10m"}, ec2={"mount_command": "mount /nowhere"}
    )
    job = cluster.submit("one")
    boots = until(lambda: cluster.stored("boots/"), "a log is left")
    (first,) = [name for name, it in cluster.records().items() if f"boots/{name}.log" in boots]
    until(lambda: cluster.records()[first].state == "terminated", "it switches itself off")
    said = cluster.read(f"boots/{first}.log")
    assert "/nowhere" in said
    assert "boot failed in line" in said
    cluster.client.cancel(job)
    cluster.until_empty()


@pytest.mark.waits
@pytest.mark.explore
def test_a_spot_instance_is_left_when_ec2_recommends_it_and_when_it_insists(
    make_ec2: Ec2s,
) -> None:
    cluster = make_ec2(spot=True)
    job = cluster.submit("one", run=RUN, spot="only")
    running(cluster, job)
    first = cluster.task(job).instance
    before = cluster.task(job).generation
    cluster.hypervisor.announce(
        cluster.records()[first].ec2_id, "events/recommendations/rebalance", {"noticeTime": "now"}
    )
    moves(cluster, job, away_from=first)
    second = cluster.task(job).instance
    # It ran on until there was another place.
    ready_ms = cluster.lines(job)[-1].at_ms
    up_ms = cluster.instances()[second].up_ms
    assert [it for it in cluster.lines(job, event="step") if up_ms < it.at_ms and it.attempt == 1]
    assert cluster.instances()[first].reason == "rebalance recommendation"
    assert cluster.records()[second].type != cluster.records()[first].type

    generation = cluster.task(job).generation
    deadline = int(time.time()) + 120
    notice = {"action": "terminate", "time": f"{datetime.fromtimestamp(deadline, UTC):%FT%TZ}"}
    cluster.hypervisor.announce(cluster.records()[second].ec2_id, "spot/instance-action", notice)
    moves(cluster, job, away_from=second)
    gone_ms = cluster.records()[second].gone_ms
    assert gone_ms is not None
    assert ready_ms < gone_ms < deadline * 1000
    end(cluster, job)
    check_moved(cluster, job, before, generation)
    stop(cluster)


def moves(cluster: Ec2Cluster, job: str, *, away_from: str) -> None:
    """Wait until a job runs elsewhere, and the instance where it was is gone."""
    gone = cluster.records
    until(lambda: gone()[away_from].state == "terminated", "it is left")
    attempt = cluster.task(job).attempt
    until(
        lambda: cluster.task(job).instance not in ("", away_from),
        f"the job goes on after attempt {attempt}",
    )
    running(cluster, job)


@pytest.mark.long
@pytest.mark.waits
def test_without_a_master_instances_store_what_runs_and_are_gone(make_ec2: Ec2s) -> None:
    cluster = make_ec2(ec2={"abandoned_after": "30s"})
    job = cluster.submit("one", run=RUN)
    running(cluster, job)
    generation = cluster.task(job).generation
    left = cluster.task(job).instance
    cluster.kill()
    until(lambda: cluster.records()[left].state == "terminated", "it goes")

    cluster.start()
    until(lambda: cluster.task(job).attempt == 2, "the job goes on")
    running(cluster, job)
    end(cluster, job)
    check_moved(cluster, job, generation)
    stop(cluster)
