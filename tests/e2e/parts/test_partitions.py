"""Two partitions with a policy each, on instances that are real processes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import yaml

from eva_wire.values.errors import InvalidJob, LimitExceeded
from tests.e2e.accounts import check_accounts, check_bill
from tests.e2e.cluster import Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.nodes.test_fixed_nodes import NODE, Machine

SETTINGS = {
    "round_period": "1h",
    "partitions": {
        "quick": {
            "policy": {"name": "no_packing"},
            "offerings": {"families": ["r7i"]},
            "limits": {"jobs": 2},
            "rule": {"duration": {"below": "1m"}},
        },
        "main": {
            "default": True,
            "policy": {"name": "eva", "short": {"name": "stratus", "below": "30s"}},
            "offerings": {"families": ["c7i"]},
        },
    },
}
EXAMPLE = Path(__file__).parents[3] / "examples" / "partitions"
SMALL = {"cpus": 1, "memory": "1GiB"}


def partitions_of(cluster: Cluster) -> dict[str, tuple[str, set[str]]]:
    """The partition of each instance, and the partitions of the jobs on it."""
    return {
        name: (one.partition, {cluster.job(task.split("/")[0]).partition for task in one.tasks})
        for name, one in cluster.instances().items()
    }


def test_two_partitions_from_submission_to_the_bill(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings=SETTINGS, catalog={"only": ["c7i", "r7i"]})
    quick = [cluster.submit(f"quick{n}", resources=SMALL, duration="20s") for n in range(2)]
    long = cluster.submit("long", resources=SMALL)
    cluster.until_running(*quick, long)
    for home, jobs in partitions_of(cluster).values():
        assert jobs == {home}
    families = {it.partition: it.type.split(".")[0] for it in cluster.instances().values()}
    assert families == {"quick": "r7i", "main": "c7i"}
    policies = {it.name: it.policy for it in cluster.client.partitions().partitions}
    assert policies == {"quick": "no_packing", "main": "stratus+eva"}
    with pytest.raises(LimitExceeded, match=r"partitions\.quick\.limits\.jobs"):
        cluster.submit("third", resources=SMALL, duration="20s")
    with pytest.raises(InvalidJob, match="no partition 'nope'"):
        cluster.submit("fourth", resources=SMALL, partition="nope")

    cluster.client.move(quick[0], "main")
    until(lambda: cluster.job(quick[0]).partition == "main", "the job has moved")
    until(lambda: cluster.task(quick[0]).attempt == 2, "the job goes on")
    cluster.until_running(quick[0])
    where = cluster.instances()[cluster.task(quick[0]).instance]
    assert (where.partition, where.type.split(".")[0]) == ("main", "c7i")

    cluster.finish(*quick, long)
    cluster.until_ended(*quick, long)
    cluster.until_empty()
    assert not cluster.lines(quick[0], event="overlap")
    answer = cluster.client.partitions()
    assert {it.name for it in answer.partitions} == {"quick", "main"}
    assert sum(it.cost_micro_usd for it in answer.partitions) == answer.bill.cost_micro_usd
    assert all(it.cost_micro_usd > 0 for it in answer.partitions)
    assert all(it.jobs == it.instances == 0 for it in answer.partitions)
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)


@pytest.mark.waits
@pytest.mark.explore
def test_the_example_runs_in_two_partitions(make_cluster: Clusters) -> None:
    settings = yaml.safe_load((EXAMPLE / "master.yaml").read_text())
    cluster = make_cluster(settings={key: settings[key] for key in ("policy", "partitions")})
    jobs = {
        name: cluster.client.submit((EXAMPLE / name).read_text(), file_name=name).job_id
        for name in ("quick.yaml", "long.yaml")
    }
    parts = {name: cluster.job(job).partition for name, job in jobs.items()}
    assert parts == {"quick.yaml": "quick", "long.yaml": "main"}
    cluster.until_ended(*jobs.values())
    assert {cluster.job(job).state for job in jobs.values()} == {"succeeded"}
    cluster.until_empty()
    answer = cluster.client.partitions()
    assert {it.name: it.cost_micro_usd > 0 for it in answer.partitions} == {
        "quick": True,
        "main": True,
    }
    check_bill(cluster)
    cluster.stop()
    check_accounts(cluster)


@pytest.mark.long
def test_an_owned_node_serves_the_partition_that_names_it(make_cluster: Clusters) -> None:
    settings = {
        "round_period": "1h",
        "nodes": {"rack1": NODE},
        "partitions": {"racks": {"offerings": {"nodes": ["rack1"]}}, "main": {"default": True}},
    }
    cluster = make_cluster(settings=settings, catalog={"only": ["c7i"]})
    (declared,) = cluster.client.owned_nodes()
    assert declared.partition == "racks"
    token = cluster.home / "rack1.token"
    made = cluster.eva("node", "token", "rack1", "--out", str(token))
    assert made.returncode == 0, made.stderr
    tiny = {"cpus": 0.5, "memory": "128MiB"}
    with closing(Machine(cluster, token)):
        own = cluster.submit("own", resources=tiny, partition="racks")
        bought = cluster.submit("bought", resources=tiny)
        cluster.until_running(own, bought)
        assert cluster.task(own).instance == "rack1"
        assert cluster.task(bought).instance != "rack1"
        with pytest.raises(InvalidJob, match="in partition racks"):
            cluster.submit("large", resources=SMALL, partition="racks")
        cluster.client.move(bought, "racks")
        until(lambda: cluster.task(bought).attempt == 2, "the job goes on on the node")
        cluster.until_running(bought)
        assert cluster.task(bought).instance == "rack1"
        cluster.finish(own, bought)
        cluster.until_ended(own, bought)
