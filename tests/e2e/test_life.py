"""Jobs from their submission to the bill, on instances that are real processes."""

from __future__ import annotations

import shlex
import ssl
import urllib.request
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eva_master.control.settings import Settings
from eva_wire.values.errors import DuplicateName, InvalidJob, Unplaceable
from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters
from tests.fakes.patience import DEADLINE_S

BIG = {"e2e.big": {"cpus": 8, "memory": "16GiB", "price": "$0.40/h", "limit": 1}}
ALL_OF_BIG = {"cpus": 8, "memory": "16GiB"}
MIB = 1024 * 1024


def share_an_instance(cluster: Cluster) -> tuple[str, str]:
    """Run a large and a small job on one instance that is worth its price for both."""
    large = cluster.submit("large", resources={"cpus": 5, "memory": "8GiB"})
    until(lambda: cluster.task(large).target, "the large job has its place")
    small = cluster.submit("small", resources={"cpus": 2, "memory": "3GiB"})
    cluster.until_running(large, small)
    return large, small


def test_from_shared_instance_to_cheaper_one_to_bill(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings={"round_period": "1h"}, catalog={"only": ["c7i"]})
    large, small = share_an_instance(cluster)
    (shared,) = cluster.instances().values()
    assert shared.type == "c7i.2xlarge"
    assert sorted(shared.tasks) == [f"{large}/0", f"{small}/0"]
    for job in (large, small):
        until(lambda job=job: cluster.task(job).rate > 0, f"the throughput of {job} arrives")

    cluster.finish(large)
    cluster.until_ended(large)
    until(lambda: cluster.task(small).attempt == 2, "the small job moves")
    cluster.until_running(small)
    cluster.finish(small)
    cluster.until_ended(small)
    cluster.until_empty()

    lines = cluster.lines(small)
    assert not cluster.lines(small, event="overlap")
    steps = [line.step for line in lines if line.event == "step"]
    assert steps == list(range(1, len(steps) + 1)), "a move repeats and loses nothing"
    assert cluster.task(small).moves == 1
    assert [it.type for it in cluster.instances().values()] == ["c7i.2xlarge", "c7i.large"]
    assert cluster.client.cost().migrations == 1
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)
    check_left_at_once(cluster, f"{small}/0", shared.id)


def check_left_at_once(cluster: Cluster, run: str, instance: str) -> None:
    """The instance was given up in the very turn in which its last task was known to be off it."""
    with cluster.journal() as journal:
        books = journal.load()
    (mover,) = (it for it in books.runs if it.id == run)
    (left,) = (it for it in books.instances if it.id == instance)
    released = [after[1] for before, after in pairwise(mover.history) if before[0] == "stopping"]
    given_up = [at for state, at in left.history if state == "terminating"]
    assert given_up == released


@pytest.mark.explore
def test_readers_on_one_instance_slow_each_other_down(make_cluster: Clusters) -> None:
    cluster = make_cluster(
        settings={
            # So that they stay together, for all that they do to each other.
            "policy": {"options": {"interference": False}},
            "local": {"launch_delay": "100ms", "data_rate_mib": 8},
        },
        catalog={"types": BIG, "only": ["e2e"]},
    )
    # A mebibyte a step, so eight steps a second is what the link alone allows.
    reading = {"throughput": 8, "envs": {"READ_BYTES": str(MIB)}}

    def speed(job: str) -> float:
        return cluster.task(job).normalised

    first = cluster.submit("first", **reading)
    alone = until(lambda: speed(first), "the speed of a reader alone")
    second = cluster.submit("second", **reading)
    until(lambda: 0 < speed(second) < 0.75 * alone, "the newcomer is slow")
    until(lambda: speed(first) < 0.75 * alone, "the first one has become slow")
    shared = speed(second)
    cluster.finish(first)
    until(lambda: speed(second) > 1.3 * shared, "the one that is left becomes fast again")
    assert cluster.task(first).instance == ""
    assert len(cluster.instances()) == 1
    cluster.finish(second)
    cluster.until_ended(first, second)


def test_a_task_sees_no_key_of_the_cluster(cluster: Cluster) -> None:
    state = cluster.state_dir
    there = shlex.quote(str(state))
    file = cluster.home / "thief.yaml"
    attack = "; ".join(
        (
            f"cat {there}/pki/* {there}/client.yaml {there}/journal.db",
            f"cat {there}/cloud/*/disk/identity/* /proc/*/root/{there}/pki/ca.key /proc/*/environ",
            f"rm -rf {there}/pki",
            f"echo poison >{there}/client.yaml",
            "echo",
            "echo end",
        )
    )
    file.write_text(cluster.job_file("thief", run=attack, throughput=None))
    submitted = cluster.eva("submit", "--wait", str(file))
    logs = cluster.eva("logs", submitted.stdout.strip()).stdout
    assert logs.splitlines()[-1] == "end"
    for secret in ("BEGIN", "token:", "SQLite", "EVA_WORKER_TOKEN="):
        assert secret not in logs
    assert (state / "pki" / "ca.key").exists()
    assert cluster.eva("ls").returncode == 0


def test_a_failing_program(cluster: Cluster) -> None:
    file = cluster.home / "failing.yaml"
    file.write_text(
        cluster.job_file(
            "failing", run="echo this is try $EVA_ATTEMPT; exit 7", retries=1, throughput=None
        )
    )

    submitted = cluster.eva("submit", "--wait", str(file))

    assert submitted.returncode == 7, submitted
    job = submitted.stdout.strip()
    cluster.until_empty()
    logs = cluster.eva("logs", job)
    assert logs.stdout == "this is try 1\nthis is try 2\n", logs
    ended = cluster.job(job)
    assert (ended.state, ended.exit_code, ended.failures) == ("failed", 7, 2)
    assert "exited with code 7" in ended.reason
    cluster.stop()
    with cluster.journal() as journal:
        (run,) = journal.load().runs
    (waited,) = (
        after[1] - before[1]
        for before, after in pairwise(run.history)
        if (before[0], after[0]) == ("waiting", "starting") and before != run.history[0]
    )
    assert waited >= Settings().backoff_ms


def test_cancelled_jobs_and_the_metrics_meanwhile(make_cluster: Clusters) -> None:
    cluster = make_cluster(catalog={"types": BIG, "only": ["e2e"]})
    running = cluster.submit("running")
    cluster.until_running(running)
    pending = cluster.submit("pending", resources=ALL_OF_BIG)
    until(lambda: cluster.task(pending).waiting_for, "the second job waits")

    check_metrics(cluster)
    for job in (running, pending):
        cluster.client.cancel(job)

    cluster.until_ended(running, pending, state="cancelled")
    assert [cluster.job(job).exit_code for job in (running, pending)] == [130, 130]
    assert cluster.lines(running)[-1].event == "end", "was asked before it was killed"
    assert cluster.lines(pending) == []
    cluster.until_empty()
    assert len(cluster.records()) == 1


def check_metrics(cluster: Cluster) -> None:
    """Prometheus sees a job that runs on an instance and one that waits."""
    url = f"https://127.0.0.1:{cluster.metrics_port}/metrics"
    trust = ssl.create_default_context(cadata=cluster.authorities().decode())
    with urllib.request.urlopen(url, timeout=DEADLINE_S, context=trust) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    figures = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in families
        for sample in family.samples
    }
    assert figures["eva_queue_tasks",] == 1
    assert figures["eva_jobs", "running"] == 1
    assert figures["eva_jobs", "pending"] == 1
    assert figures["eva_tasks", "running"] == 1
    assert figures["eva_tasks", "waiting"] == 1
    assert figures["eva_instances", "e2e.big", "ready"] == 1
    assert figures["eva_workers_connected",] == 1
    assert figures["eva_cost_usd_per_hour",] == pytest.approx(0.40)
    assert figures["eva_no_packing_usd_per_hour",] == pytest.approx(0.40)
    assert figures["eva_cost_usd_total",] > 0
    assert figures["eva_rounds_total",] >= 2
    assert figures["eva_round_seconds_count",] >= 1


def test_what_is_refused_changes_nothing(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings={"local": {"launch_delay": "1h"}})
    known = cluster.submit("known")
    until(lambda: cluster.task(known).target, "the job has its place")
    before = cluster.journal_rows()
    assert before["jobs"]
    wrong = cluster.home / "wrong.yaml"
    wrong.write_text(cluster.job_file("wrong", gpu=1))

    refused = cluster.eva("submit", str(wrong))
    assert refused.returncode not in (0, 1)
    assert "gpu" in refused.stderr
    with pytest.raises(InvalidJob, match="gpu"):
        cluster.submit("wrong", gpu=1)
    with pytest.raises(Unplaceable, match="lacks 4808 vCPUs"):
        cluster.submit("unplaceable", resources={"cpus": 5000, "memory": "1GiB"})
    with pytest.raises(DuplicateName):
        cluster.submit("known", unique=True)
    with pytest.raises(InvalidJob, match="working directory"):
        cluster.client.submit(
            cluster.job_file("empty-handed"), file_name="job.yaml", workdir="0" * 64
        )

    assert [job.id for job in cluster.client.jobs(ended=True)] == [known]
    assert cluster.journal_rows() == before
    assert len(cluster.records()) == 1
