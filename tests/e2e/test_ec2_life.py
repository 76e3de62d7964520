"""Jobs on instances that were bought from EC2's API, booted by their user data, and are gone."""

from __future__ import annotations

import pytest

from tests.e2e.books import check_bill
from tests.e2e.cluster import until
from tests.e2e.conftest import Ec2s

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(240)]

BOOTED_S = 60.0


def test_a_job_runs_on_an_instance_that_boots_itself(make_ec2: Ec2s) -> None:
    cluster = make_ec2()
    job = cluster.submit("one")
    until(lambda: cluster.task(job).state == "running", "the job runs", within_s=BOOTED_S)
    cluster.until_running(job)
    until(lambda: cluster.task(job).generation, "a checkpoint is stored")
    cluster.finish(job)
    cluster.until_ended(job)
    cluster.until_empty()

    stored = cluster.stored(f"jobs/{job}/0/")
    assert {key.split("/")[3] for key in stored} >= {"logs", "checkpoints"}
    check_bill(cluster)
    cluster.stop_master()
