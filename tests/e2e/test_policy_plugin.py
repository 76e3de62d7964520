"""A policy of another distribution decides for a real cluster; one that is broken does no harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Clusters
from tests.fakes import plugins


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the import path of everything that is started."""
    target = tmp_path / "site"
    plugins.install(target)
    monkeypatch.setenv("PYTHONPATH", plugins.path_with(target))
    return target


@pytest.mark.long
def test_a_policy_from_elsewhere_decides_also_after_a_restart(
    make_cluster: Clusters, site: Path
) -> None:
    plugins.distribution(site, "no-good", {"no_good": "no_good:POLICY"}, no_good="raise KeyError")
    plugins.distribution(site, "long-gone", {"long_gone": "long_gone:POLICY"})
    cluster = make_cluster(
        command="master",
        settings={"policy": {"name": "first_fit", "options": {"most_tasks": 2}}},
        catalog={"only": ["c7i"]},
    )
    small = {"cpus": 0.5, "memory": "512MiB"}  # A c7i.large holds four.
    jobs = [cluster.submit(name, resources=small) for name in ("a", "b")]
    cluster.until_running(*jobs)
    assert len({cluster.task(job).instance for job in jobs}) == 1, "they share one"
    cluster.kill()
    cluster.start()
    third = cluster.submit("c", resources=small)
    cluster.until_running(third)
    assert cluster.task(third).instance != cluster.task(jobs[0]).instance, "two are enough"
    cluster.finish(*jobs, third)
    cluster.until_ended(*jobs, third)
    told = dict(cluster.logs())
    assert any("a policy cannot be used" in text and "long_gone" in text for text in told.values())
    cluster.until_empty()
