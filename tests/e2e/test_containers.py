"""A cluster on this machine whose tasks run in containers, and one whose tasks do not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import docker
import psutil
import pytest

from eva_wire.values.errors import InvalidJob
from tests.e2e.cluster import SETTINGS, Cluster, until
from tests.e2e.conftest import Clusters
from tests.fakes.docker import dockerd

FILE = """\
name: {name}
run: "echo attempt $EVA_ATTEMPT of image $OF_IMAGE; sleep 600"
resources: {{cpus: 1.5, memory: 64MiB}}
grace_period: 1s
"""


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(docker.DockerClient(base_url=docker_engine)) as client:
        yield client


def containers(client: Any, job: str) -> list[Any]:
    """The containers of a job's task that run."""
    found: list[Any] = client.containers.list(filters={"label": f"eva.copy={job}/0"})
    return found


def containers_of(engine: str) -> dict[str, str]:
    """Settings of a local cloud whose tasks run in containers of an engine."""
    return {"runtime": "docker", "docker_host": engine, "docker_image": dockerd.IMAGE}


def until_attempt(cluster: Cluster, client: Any, job: str, number: int) -> Any:
    """Wait until an attempt runs in a container, the only one of its job; returns it."""
    until(lambda: cluster.task(job).state == "running", f"{job} runs")
    until(lambda: cluster.task(job).attempt == number, f"attempt {number} of {job}")
    until(lambda: containers(client, job), f"the container of {job}")
    (container,) = containers(client, job)
    assert container.labels["eva.attempt"] == str(number)
    return container


@pytest.mark.docker
def test_containers_live_and_die_with_their_instances(
    make_cluster: Clusters, client: Any, docker_engine: str
) -> None:
    local = containers_of(docker_engine)
    cluster = make_cluster(settings={"local": {**SETTINGS["local"], **local}})
    shown = json.loads(cluster.client.config())["local"]
    assert {name: shown[name] for name in local} == local
    job = cluster.client.submit(FILE.format(name="job"), file_name="job.yaml").job_id
    first = until_attempt(cluster, client, job, 1)
    assert first.attrs["HostConfig"]["Memory"] == 64 << 20
    cpus = {int(cpu) for cpu in first.attrs["HostConfig"]["CpusetCpus"].split(",")}
    assert cpus <= os.sched_getaffinity(0)

    # The master dies, and the container does not notice.
    cluster.kill()
    cluster.start()
    until(lambda: cluster.client.describe().instances[0].state == "ready", "the worker is back")
    assert until_attempt(cluster, client, job, 1).id == first.id

    # The instance dies, and the container with it.
    instance = cluster.task(job).instance
    pid = cluster.records()[instance].pid
    assert pid is not None
    psutil.Process(pid).send_signal(signal.SIGKILL)
    second = until_attempt(cluster, client, job, 2)
    assert second.labels["eva.instance"] != instance
    started = [b"attempt 1 of image 1", b"attempt 2 of image 1"]
    until(lambda: b"".join(cluster.client.logs(job)).splitlines()[-1:] == started[1:], "its log")

    # The cluster ends, and nothing is left.
    cluster.stop()
    assert client.containers.list(all=True) == []


@pytest.mark.long
@pytest.mark.docker
def test_a_job_brings_its_own_image(
    make_cluster: Clusters, client: Any, docker_engine: str
) -> None:
    local = containers_of(docker_engine)
    cluster = make_cluster(settings={"local": {**SETTINGS["local"], **local}})
    client.images.get(dockerd.IMAGE).tag("of-job", "1")
    text = FILE.format(name="job") + "image: of-job:1\n"
    job = cluster.client.submit(text, file_name="job.yaml").job_id
    assert until_attempt(cluster, client, job, 1).attrs["Config"]["Image"] == "of-job:1"
    cluster.client.cancel(job)
    until(lambda: not containers(client, job), "the cancelled job's container is gone")


def test_a_cluster_of_processes_refuses_images(make_cluster: Clusters) -> None:
    cluster = make_cluster(settings={"local": {**SETTINGS["local"], "runtime": "process"}})
    for keys, key in (("image: busybox:1\n", "image"), ("build: {context: .}\n", "build")):
        with pytest.raises(InvalidJob, match="plain processes") as refused:
            cluster.client.submit(FILE.format(name="job") + keys, file_name="job.yaml")
        (problem,) = refused.value.problems
        assert (problem.key, problem.line) == (key, 5)
        assert "local.runtime: docker" in problem.hint
    assert list(cluster.client.jobs(ended=True)) == []
