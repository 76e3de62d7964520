"""Tasks that stand in line take room as it becomes free; an operator drains an instance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.cluster import until
from tests.e2e.conftest import Clusters
from tests.fakes import plugins
from tests.fakes.pools import policy


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the import path of everything that is started."""
    target = tmp_path / "site"
    target.mkdir()
    monkeypatch.setenv("PYTHONPATH", plugins.path_with(target))
    return target


def test_short_tasks_stand_in_line_for_a_pool_that_stays(
    make_cluster: Clusters, site: Path
) -> None:
    source = Path(policy.__file__).read_text() + "\n\nPOLICY = KIND\n"
    plugins.distribution(site, "pool-policy", {"pools": "pool_policy:POLICY"}, pool_policy=source)
    cluster = make_cluster(
        command="master",
        settings={"policy": {"name": "pools", "options": {"size": 1}}},
        catalog={"only": ["c7i.large"]},
    )
    one = {"cpus": 2, "memory": "3GiB"}  # A c7i.large holds one.
    jobs = [cluster.submit(name, resources=one) for name in ("a", "b")]
    cluster.until_running(jobs[0])
    waits = cluster.task(jobs[1])
    assert (waits.instance, waits.target) == ("", "")
    assert "in line for room in pool small" in waits.waiting_for
    told = cluster.eva("explain", jobs[0]).stdout
    assert "stood in line for room in the pool small" in told
    waits_for = cluster.eva("explain", jobs[1]).stdout
    assert "no bound on when its next task starts: how long the tasks take that run" in waits_for
    (node,) = json.loads(cluster.eva("nodes", "--json").stdout)["instances"]
    assert node["pool"] == "small"
    # A master that dies forgets the line; the next one's first plan states it again.
    cluster.kill()
    cluster.start()
    cluster.finish(jobs[0])
    cluster.until_running(jobs[1])
    assert cluster.task(jobs[1]).instance == node["id"], "the instance stayed for the next"
    cluster.eva("drain", node["id"], "--yes")
    shown = json.loads(cluster.eva("drain", node["id"], "--yes", "--json").stdout)
    assert shown["instances"][0]["draining"].startswith("drained by ")
    assert "draining: drained by" in cluster.eva("nodes").stdout
    assert cluster.task(jobs[1]).state == "running", "it finishes where it is"
    cluster.finish(jobs[1])
    cluster.until_ended(*jobs)
    until(lambda: cluster.instances()[node["id"]].state == "gone", "the drained one is gone")
    bill = json.loads(cluster.eva("cost", "--json").stdout)
    (row,) = bill["pools"]
    assert (row["pool"], row["cost_usd"], row["idle_usd"]) == (
        "small",
        bill["cost_usd"],
        bill["idle_usd"],
    )
    assert row["spot_usd"] == row["on_demand_usd"] == 0
    assert "(none)" in cluster.eva("cost").stdout
