"""Clusters of real processes, cleared away whatever happens."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.ec2_master import Ec2Master
from tests.fakes.ec2.cluster import Ec2Cluster
from tests.fakes.hosts.cluster import HostCluster

Clusters = Callable[..., Cluster]
Hosts = Callable[..., HostCluster]
Ec2s = Callable[..., Ec2Cluster]
Ec2Masters = Callable[..., Ec2Master]
_CLUSTERS = pytest.StashKey[list[Cluster]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is end to end."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("e2e")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the logs of the test's clusters to the report of its failure."""
    report = yield
    if report.failed:
        for cluster in item.stash.get(_CLUSTERS, []):
            report.sections += cluster.logs()
    return report


def _close(cluster: Cluster) -> None:
    try:
        cluster.close()
    except BaseException as error:
        # Its files are gone by the time the failure is reported.
        for title, text in cluster.logs():
            error.add_note(f"--- {title}\n{text}")
        raise


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest) -> Iterator[Clusters]:
    """Starts clusters; arguments as for `Cluster`."""
    made: list[Cluster] = []
    request.node.stash[_CLUSTERS] = made
    # Not under tmp_path: the name of a Unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="eva-e2e-", ignore_cleanup_errors=True) as home:

        def make(**options: Any) -> Cluster:
            directory = Path(home) / str(len(made))
            directory.mkdir()
            cluster = Cluster(directory, **options)
            made.append(cluster)
            cluster.start()
            return cluster

        try:
            yield make
        finally:
            with ExitStack() as stack:
                for cluster in made:
                    stack.callback(_close, cluster)


@pytest.fixture
def cluster(make_cluster: Clusters) -> Cluster:
    """A cluster with the usual settings."""
    return make_cluster()


@pytest.fixture
def make_hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Starts clusters of test hosts; arguments as for `HostCluster`."""
    made: list[Cluster] = []
    request.node.stash[_CLUSTERS] = made
    with ExitStack() as stack:

        def make(**options: Any) -> HostCluster:
            cluster = HostCluster(**options)
            stack.callback(_close, cluster)
            made.append(cluster)
            cluster.start()
            return cluster

        yield make


@pytest.fixture
def make_ec2(request: pytest.FixtureRequest) -> Iterator[Ec2s]:
    """Starts clusters on EC2's stand-in; arguments as for `Ec2Cluster`."""
    made: list[Cluster] = []
    request.node.stash[_CLUSTERS] = made
    with ExitStack() as stack:

        def make(**options: Any) -> Ec2Cluster:
            cluster = Ec2Cluster(**options)
            stack.callback(_close, cluster)
            made.append(cluster)
            cluster.start()
            return cluster

        yield make


@pytest.fixture
def make_master(request: pytest.FixtureRequest) -> Iterator[Ec2Masters]:
    """Starts masters alone; the API has its orders by then. Arguments as for `Ec2Master`."""
    made: list[Cluster] = []
    request.node.stash[_CLUSTERS] = made
    with tempfile.TemporaryDirectory(prefix="eva-e2e-", ignore_cleanup_errors=True) as home:

        def make(order: dict[str, Any] | None = None, **settings: Any) -> Ec2Master:
            directory = Path(home) / str(len(made))
            directory.mkdir()
            master = Ec2Master(directory, **settings)
            made.append(master)
            if order is not None:
                master.aws.order(master.name, **order)
            master.start()
            return master

        try:
            yield make
        finally:
            with ExitStack() as stack:
                for cluster in made:
                    stack.callback(_close, cluster)
