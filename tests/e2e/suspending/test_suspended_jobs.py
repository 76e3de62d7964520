"""Jobs that are suspended and go on from their checkpoints, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters

BOX = {"e2e.box": {"cpus": 2, "memory": "4GiB", "price": "$0.10/h", "limit": 1}}
ALL = {"cpus": 2, "memory": "3GiB"}
EXAMPLE = Path(__file__).parents[3] / "examples" / "suspend"


def steps(cluster: Cluster, job: str) -> list[int]:
    return [line.step for line in cluster.lines(job) if line.event == "step"]


def test_a_user_suspends_a_job_and_it_goes_on_where_it_was(make_cluster: Clusters) -> None:
    cluster = make_cluster(catalog={"types": BOX, "only": ["e2e"]})
    job = cluster.submit("patient", resources=ALL)
    cluster.until_running(job)
    until(lambda: len(steps(cluster, job)) > 3, "it has come somewhere")
    done = cluster.eva("suspend", job, "nobody", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert [(it["id"], it["changed"]) for it in told["jobs"]] == [(job, True)]
    assert [it["job"] for it in told["refused"]] == ["nobody"]
    until(lambda: cluster.client.job(job).state == "suspended", "it is suspended")
    cluster.until_empty()
    shown = cluster.client.job(job)
    assert shown.suspension.by == "user"
    assert "suspended by" in shown.tasks[0].waiting_for
    assert "suspended" in cluster.eva("ls").stdout
    before, cost = steps(cluster, job), cluster.client.job(job).cost_micro_usd

    cluster.kill()
    cluster.start()
    assert cluster.client.job(job).state == "suspended"
    assert cluster.client.job(job).cost_micro_usd == cost
    assert cluster.eva("resume", job).returncode == 0
    assert cluster.eva("resume", job).returncode == 0
    cluster.until_running(job)
    cluster.finish(job)
    cluster.until_ended(job)
    after = steps(cluster, job)
    assert after[: len(before)] == before
    assert after == list(range(1, len(after) + 1)), "nothing is lost, and nothing done twice"
    cluster.until_empty()
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)


@pytest.mark.explore
def test_the_urgent_take_the_room_of_the_patient_and_give_it_back(make_cluster: Clusters) -> None:
    cluster = make_cluster(
        settings={"preemption": "suspend", "limits": {"priority": 0}, "round_period": "2s"},
        catalog={"types": BOX, "only": ["e2e"]},
    )
    patient = cluster.submit("patient", resources=ALL)
    cluster.until_running(patient)
    until(lambda: len(steps(cluster, patient)) > 3, "it has come somewhere")
    document = yaml.safe_load((EXAMPLE / "urgent.yaml").read_text())
    document["resources"] = ALL
    file = cluster.home / "urgent.yaml"
    file.write_text(yaml.safe_dump({**document, "workdir": str(EXAMPLE)}))
    plan = json.loads(cluster.eva("plan", str(file), "--json").stdout)
    assert [it["task"] for it in plan["suspended"]] == [f"{patient}/0"]
    assert "would be suspended" in cluster.eva("plan", str(file)).stdout
    urgent = cluster.submit("urgent", resources=ALL, priority=10)
    cluster.until_running(urgent)
    shown = cluster.client.job(patient)
    assert (shown.state, shown.suspension.by) == ("suspended", "priority")
    assert shown.suspension.job == urgent
    assert f"suspended for {urgent}" in shown.tasks[0].waiting_for
    before = steps(cluster, patient)
    cluster.finish(urgent)
    cluster.until_ended(urgent)
    cluster.until_running(patient)
    cluster.finish(patient)
    cluster.until_ended(patient)
    after = steps(cluster, patient)
    assert after[: len(before)] == before
    assert after == list(range(1, len(after) + 1))
    cluster.until_empty()
    check_bill(cluster)
