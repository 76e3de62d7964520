"""Kill matrix: an object store that answers nothing but errors for half a minute."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_wire.values.errors import StorageError
from tests.e2e.cluster import until
from tests.e2e.conftest import Hosts
from tests.e2e.kill_matrix import matrix
from tests.e2e.kill_matrix.matrix import TWO_EACH

pytestmark = [pytest.mark.hosts, pytest.mark.waits]

OUTAGE_S = 30.0


@pytest.mark.explore
def test_uploads(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH, objects_in_s3=True)
    assert cluster.s3
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    instance = cluster.task(ending).instance
    container = matrix.container_of(cluster, going_on)

    cluster.s3.break_s3()
    known = cluster.lines(going_on, event="checkpoint")
    cluster.finish(ending)
    until(lambda: cluster.lines(ending, event="end"), "one task ends")
    steps = cluster.task(going_on).steps

    def unstored() -> bool:
        """Whether nothing counts as stored."""
        assert cluster.job(ending).state == "running"
        return cluster.task(going_on).generation <= len(known)

    matrix.hold(OUTAGE_S, unstored, "nothing can be stored")
    assert cluster.task(going_on).steps > steps + OUTAGE_S
    cluster.s3.mend_s3()

    until(lambda: cluster.job(ending).finished_ms, "its end is stored")
    now = cluster.lines(going_on, event="checkpoint")
    until(lambda: cluster.task(going_on).generation >= len(now), "checkpoints are stored again")
    assert matrix.container_of(cluster, going_on) == container
    assert list(cluster.instances()) == [instance]
    matrix.end(cluster, *jobs)
    matrix.check_undisturbed(cluster, *jobs)
    matrix.stop(cluster)


@pytest.mark.long
def test_submission_and_fetches(make_hosts: Hosts, tmp_path: Path) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH, objects_in_s3=True)
    assert cluster.s3
    (tmp_path / "hello").write_text("hello")
    hello = {"workdir": tmp_path, "run": "cat hello", "throughput": None}
    starting = matrix.submit(cluster, "starting")

    cluster.s3.break_s3()

    with pytest.raises(StorageError, match="503 Service Unavailable"):
        cluster.submit("hello", **hello)
    until(lambda: cluster.task(starting).instance, "one job has its place")
    matrix.hold(OUTAGE_S, lambda: not cluster.lines(starting), "its files cannot be fetched")
    cluster.s3.mend_s3()

    assert [job.name for job in cluster.client.jobs()] == ["starting"], "half a job was taken"
    said = cluster.submit("hello", **hello)
    cluster.until_running(starting)
    cluster.until_ended(said)
    assert b"".join(cluster.client.logs(said)) == b"hello"
    matrix.end(cluster, starting)
    matrix.check_undisturbed(cluster, starting)
    matrix.stop(cluster)
