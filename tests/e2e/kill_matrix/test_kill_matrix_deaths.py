"""Kill matrix: SIGKILL of each thing that a running task depends on."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import until
from tests.e2e.conftest import Hosts
from tests.e2e.kill_matrix import matrix
from tests.e2e.kill_matrix.matrix import TWO_EACH

pytestmark = [pytest.mark.hosts, pytest.mark.waits]


def test_agent(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH)
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    instance = cluster.task(ending).instance
    container = matrix.container_of(cluster, going_on)
    agent = cluster.agent(instance)

    agent.kill()
    cluster.finish(ending)

    until(lambda: cluster.lines(ending, event="end"), "one task ends while there is no agent")
    cluster.until_ended(ending)
    steps = cluster.task(going_on).steps
    until(lambda: cluster.task(going_on).steps > steps, "the next agent tells of the other one")
    assert cluster.agent(instance) != agent
    assert matrix.container_of(cluster, going_on) == container
    matrix.end(cluster, *jobs)
    matrix.check_undisturbed(cluster, *jobs, unheard=ending)
    matrix.stop(cluster)


@pytest.mark.explore
def test_container(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH)
    killed, beside = jobs = matrix.run(cluster, "killed", "beside")
    instance, stored = cluster.task(killed).instance, cluster.task(killed).generation

    with cluster.docker(instance) as client:
        client.containers.get(matrix.container_of(cluster, killed)[0]).kill()

    until(lambda: cluster.job(killed).failures, "the failure is counted")
    assert "exited with code 137 (SIGKILL)" in cluster.job(killed).reason
    until(lambda: cluster.task(killed).attempt == 2, "a second attempt")
    cluster.until_running(killed)
    matrix.end(cluster, *jobs)
    matrix.check_resumed(cluster, killed, stored, failures=1)
    matrix.check_undisturbed(cluster, beside)
    assert len(cluster.records()) == 1
    matrix.stop(cluster)


@pytest.mark.explore
def test_engine_that_leaves_containers_alone(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH)
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    instance = cluster.task(ending).instance
    container = matrix.container_of(cluster, going_on)
    engine, agent = cluster.engine(instance), cluster.agent(instance)

    engine.kill()
    cluster.finish(ending)

    until(lambda: cluster.lines(ending, event="end"), "one task ends while there is no engine")
    cluster.until_ended(ending)
    cluster.until_steps(going_on)
    assert cluster.engine(instance) != engine
    assert cluster.agent(instance) == agent
    assert matrix.container_of(cluster, going_on) == container
    matrix.end(cluster, *jobs)
    matrix.check_undisturbed(cluster, *jobs)
    matrix.stop(cluster)


@pytest.mark.explore
def test_engine_that_takes_containers_along(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH, live_restore=False)
    (job,) = matrix.run(cluster, "job")
    instance, stored = cluster.task(job).instance, cluster.task(job).generation
    agent = cluster.agent(instance)

    cluster.engine(instance).kill()

    until(lambda: "engine" in cluster.job(job).reason, "the failure is explained")
    until(lambda: cluster.task(job).attempt == 2, "a second attempt")
    cluster.until_running(job)
    assert cluster.agent(instance) == agent
    matrix.end(cluster, job)
    matrix.check_resumed(cluster, job, stored)
    assert len(cluster.records()) == 1
    matrix.stop(cluster)


@pytest.mark.explore
def test_master(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH)
    ending, going_on = jobs = matrix.run(cluster, "ending", "going-on")
    instance = cluster.task(ending).instance
    container = matrix.container_of(cluster, going_on)
    agent = cluster.agent(instance)

    cluster.kill()
    cluster.finish(ending)

    until(lambda: cluster.lines(ending, event="end"), "one task ends while there is no master")
    made = len(cluster.lines(going_on))
    until(lambda: len(cluster.lines(going_on)) > made + 5, "the other one goes on")
    cluster.start()
    cluster.until_ended(ending)
    steps = cluster.task(going_on).steps
    until(lambda: cluster.task(going_on).steps > steps, "the master hears of the other one")
    assert cluster.agent(instance) == agent
    assert matrix.container_of(cluster, going_on) == container
    matrix.end(cluster, *jobs)
    matrix.check_undisturbed(cluster, *jobs)
    assert len(cluster.records()) == 1
    matrix.stop(cluster)


def test_host(make_hosts: Hosts) -> None:
    cluster = make_hosts(settings=matrix.settings(), catalog=TWO_EACH)
    jobs = matrix.run(cluster, "one", "other")
    instance = cluster.task(jobs[0]).instance
    stored = {job: cluster.task(job).generation for job in jobs}
    everything = cluster.everything(instance)

    cluster.machine(instance).kill()

    until(lambda: all(map(matrix.gone, everything)), "nothing outlives the power cut")
    for job in jobs:
        until(lambda job=job: cluster.task(job).attempt == 2, f"a second attempt of {job}")
    cluster.until_running(*jobs)
    matrix.end(cluster, *jobs)
    for job in jobs:
        matrix.check_resumed(cluster, job, stored[job])
        matrix.check_replaced_when_gone(cluster, job, instance)
    matrix.stop(cluster)
