"""Kill matrix: SIGSTOP for half a minute, then SIGCONT. What is stopped looks dead, and is not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil
import pytest

from tests.e2e.cluster import until
from tests.e2e.conftest import Hosts
from tests.e2e.kill_matrix import matrix
from tests.e2e.kill_matrix.matrix import TWO_EACH
from tests.fakes.hosts.cluster import HostCluster

pytestmark = [pytest.mark.hosts, pytest.mark.waits]

STOPPED_S = 30.0
# Shorter than the stop, by more than it takes to notice that a worker is silent.
HASTY = matrix.settings(lost_worker_timeout="5s")


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """Have a process do nothing."""
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def check_same(
    cluster: HostCluster, jobs: list[str], containers: dict[str, tuple[str, str]]
) -> None:
    """Once all is well again: containers go on to their end, and none was ever replaced.

    Args:
        cluster: Whose master answers again.
        jobs: All of them.
        containers: Of those jobs that are still to end.
    """
    for job, container in containers.items():
        cluster.until_steps(job)
        steps = cluster.task(job).steps
        until(lambda job=job, steps=steps: cluster.task(job).steps > steps, f"news of {job}")
        assert matrix.container_of(cluster, job) == container
    matrix.end(cluster, *jobs)
    matrix.check_undisturbed(cluster, *jobs)
    assert len(cluster.records()) == 1
    matrix.stop(cluster)


@pytest.mark.explore
def test_agent_that_is_waited_for(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH)
    jobs = matrix.run(cluster, "job")
    containers = {job: matrix.container_of(cluster, job) for job in jobs}
    agent = cluster.agent(cluster.task(jobs[0]).instance)

    with stopped(agent):
        until(
            lambda: not cluster.client.describe().instances[0].connected, "its silence is noticed"
        )
        matrix.hold(STOPPED_S, lambda: cluster.task(jobs[0]).attempt == 1, "it is waited for")

    check_same(cluster, jobs, containers)


@pytest.mark.explore
def test_agent_that_is_given_up(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=HASTY, catalog=TWO_EACH)
    (job,) = matrix.run(cluster, "job")
    instance, stored = cluster.task(job).instance, cluster.task(job).generation

    # The task runs on, as long as its instance does.
    cluster.agent(instance).suspend()

    until(lambda: cluster.task(job).attempt == 2, "a second attempt")
    cluster.until_running(job)
    matrix.end(cluster, job)
    matrix.check_resumed(cluster, job, stored)
    matrix.check_replaced_when_gone(cluster, job, instance)
    matrix.stop(cluster)


@pytest.mark.explore
def test_engine(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=HASTY, catalog=TWO_EACH)
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    instance = cluster.task(ending).instance
    container = matrix.container_of(cluster, going_on)
    before = cluster.task(going_on).steps

    with stopped(cluster.engine(instance)):
        cluster.finish(ending)
        until(lambda: cluster.lines(ending, event="end"), "one task ends unnoticed")
        matrix.hold(STOPPED_S, lambda: cluster.task(ending).state == "running", "nobody knows")
        assert cluster.task(going_on).steps > before

    cluster.until_ended(ending)
    check_same(cluster, jobs, {going_on: container})


@pytest.mark.explore
def test_master(make_hosts: Hosts) -> None:
    # Healthy workers were silent for longer than this when the master comes to itself.
    cluster = make_hosts(settings=matrix.settings(lost_worker_timeout="25s"), catalog=TWO_EACH)
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    container = matrix.container_of(cluster, going_on)

    with stopped(cluster.master()):
        cluster.finish(ending)
        until(lambda: cluster.lines(ending, event="end"), "one task ends while nobody listens")
        made = len(cluster.lines(going_on))
        matrix.hold(STOPPED_S, lambda: len(cluster.lines(going_on)) >= made, "the other goes on")
        assert len(cluster.lines(going_on)) > made + STOPPED_S

    cluster.until_ended(ending)
    check_same(cluster, jobs, {going_on: container})


@pytest.mark.explore
def test_host_that_is_waited_for(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH)
    jobs = matrix.run(cluster, "one", "other")
    containers = {job: matrix.container_of(cluster, job) for job in jobs}
    instance = cluster.task(jobs[0]).instance

    cluster.freeze(instance)
    made = [len(cluster.lines(job)) for job in jobs]
    until(lambda: not cluster.client.describe().instances[0].connected, "its silence is noticed")
    matrix.hold(
        STOPPED_S, lambda: [cluster.task(job).attempt for job in jobs] == [1, 1], "it is waited for"
    )
    assert [len(cluster.lines(job)) for job in jobs] == made
    cluster.thaw(instance)

    check_same(cluster, jobs, containers)


@pytest.mark.long
def test_host_that_is_given_up(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=HASTY, catalog=TWO_EACH)
    jobs = matrix.run(cluster, "one", "other")
    instance = cluster.task(jobs[0]).instance
    stored = {job: cluster.task(job).generation for job in jobs}

    cluster.freeze(instance)

    for job in jobs:
        until(lambda job=job: cluster.task(job).attempt == 2, f"a second attempt of {job}")
    cluster.until_running(*jobs)
    matrix.end(cluster, *jobs)
    for job in jobs:
        matrix.check_resumed(cluster, job, stored[job])
        matrix.check_replaced_when_gone(cluster, job, instance)
    matrix.stop(cluster)


@pytest.mark.explore
def test_container(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=HASTY, catalog=TWO_EACH)
    (job,) = jobs = matrix.run(cluster, "job")
    containers = {job: matrix.container_of(cluster, job)}

    with cluster.docker(cluster.task(job).instance) as client:
        container = client.containers.get(containers[job][0])
        container.pause()
        made = len(cluster.lines(job))
        matrix.hold(STOPPED_S, lambda: cluster.task(job).attempt == 1, "it is waited for")
        assert len(cluster.lines(job)) == made
        container.unpause()

    check_same(cluster, jobs, containers)
