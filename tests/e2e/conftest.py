"""Clusters of real processes, cleared away whatever happens."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.ec2.master import Ec2Master
from tests.fakes.ec2.cluster import Ec2Cluster
from tests.fakes.hosts.cluster import HostCluster
from tests.fakes.paths import short_tempdir

AnyCluster = TypeVar("AnyCluster", bound=Cluster)
Clusters = Callable[..., Cluster]
Hosts = Callable[..., HostCluster]
Ec2s = Callable[..., Ec2Cluster]
Ec2Masters = Callable[..., Ec2Master]
_CLUSTERS = pytest.StashKey[list[Cluster]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is end to end. Who needs a time limit of their own take longest and begin."""
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker("e2e")
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the logs of the test's clusters to the report of its failure."""
    report = yield
    if report.failed:
        for cluster in item.stash.get(_CLUSTERS, []):
            report.sections += [(title, text) for title, text in cluster.logs() if text]
    return report


def _close(cluster: Cluster) -> None:
    try:
        cluster.close()
    except BaseException as error:
        # Its files are gone by the time the failure is reported.
        for title, text in filter(lambda log: log[1], cluster.logs()):
            error.add_note(f"--- {title}\n{text}")
        raise


Keep = Callable[[AnyCluster], AnyCluster]


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Iterator[Keep]:
    """Starts a cluster that is closed when the test is over, and whose logs tell why it failed."""
    made: list[Cluster] = []
    request.node.stash[_CLUSTERS] = made
    with ExitStack() as stack:

        def keep(cluster: AnyCluster) -> AnyCluster:
            stack.callback(_close, cluster)
            made.append(cluster)
            cluster.start()
            return cluster

        yield keep


@pytest.fixture
def make_home() -> Iterator[Callable[[], Path]]:
    """Makes directories for clusters; they are gone after these are closed."""
    with tempfile.TemporaryDirectory(
        prefix="eva-e2e-", dir=short_tempdir(), ignore_cleanup_errors=True
    ) as home:
        numbers = itertools.count()

        def make() -> Path:
            directory = Path(home, str(next(numbers)))
            directory.mkdir()
            return directory

        yield make


@pytest.fixture
def make_cluster(make_home: Callable[[], Path], keep: Keep) -> Clusters:
    """Starts clusters; arguments as for `Cluster`."""
    return lambda **options: keep(Cluster(make_home(), **options))


@pytest.fixture
def cluster(make_cluster: Clusters) -> Cluster:
    """A cluster with the usual settings."""
    return make_cluster()


@pytest.fixture
def make_hosts(keep: Keep) -> Hosts:
    """Starts clusters of test hosts; arguments as for `HostCluster`."""
    return lambda **options: keep(HostCluster(**options))


@pytest.fixture
def make_ec2(keep: Keep) -> Ec2s:
    """Starts clusters on EC2's stand-in; arguments as for `Ec2Cluster`."""
    return lambda **options: keep(Ec2Cluster(**options))


@pytest.fixture
def make_master(make_home: Callable[[], Path], keep: Keep) -> Ec2Masters:
    """Starts masters alone; the API has its orders by then. Arguments as for `Ec2Master`."""

    def make(order: dict[str, Any] | None = None, **settings: Any) -> Ec2Master:
        master = Ec2Master(make_home(), **settings)
        if order is not None:
            master.aws.order(master.name, **order)
        return keep(master)

    return make
