"""Commands in containers and connections to them, of a whole cluster with a real engine."""

from __future__ import annotations

import contextlib
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import docker
import pytest
import yaml

from tests.e2e.cluster import EVA, SETTINGS, Cluster, until
from tests.e2e.conftest import Clusters
from tests.e2e.parts.test_exec import UNREACHABLE, command
from tests.e2e.test_containers import containers, containers_of
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.ports import free_port

BOX = {"e2e.box": {"cpus": 8, "memory": "16GiB", "price": "$0.10/h", "limit": 1}}
SERVE = 'mkdir -p www; echo "$EVA_TASK_ID" >www/who; exec httpd -f -p {where} -h www'
_HERE = re.compile(r"127\.0\.0\.1:([0-9]+) is port")

pytestmark = pytest.mark.docker


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(docker.DockerClient(base_url=docker_engine)) as client:
        yield client


@pytest.fixture
def cluster(make_cluster: Clusters, docker_engine: str) -> Cluster:
    local = {**SETTINGS["local"], **containers_of(docker_engine)}
    return make_cluster(settings={"local": local}, catalog={"types": BOX, "only": ["e2e"]})


def submit(cluster: Cluster, name: str, where: str, **keys: Any) -> str:
    """Submit a job whose tasks serve their names over HTTP."""
    document = {
        "name": name,
        "run": SERVE.format(where=where),
        "resources": {"cpus": 1, "memory": "64MiB"},
        "grace_period": "1s",
        **keys,
    }
    return cluster.client.submit(yaml.safe_dump(document), file_name=f"{name}.yaml").job_id


def until_serving(cluster: Cluster, task: str, url: str) -> None:
    """Wait until a task serves its name."""
    script = ("exec", task, "--", "wget", "-q", "-O", "-", f"http://{url}/who")
    until(lambda: cluster.eva(*script).stdout == f"{task}\n", f"{task} serves")


class Forward:
    """A forwarded port of a task."""

    def __init__(self, cluster: Cluster, task: str, port: int) -> None:
        self.process = subprocess.Popen(
            [*EVA, "port-forward", task, f"{port}:0"],
            env=cluster.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        match = _HERE.match(line)
        assert match is not None, line
        self._url = f"http://127.0.0.1:{match[1]}/who"

    def answer(self) -> str:
        """The name of the task that is reached; empty if none is."""
        try:
            with urllib.request.urlopen(self._url, timeout=DEADLINE_S) as answer:
                return str(answer.read().decode().strip())
        except OSError:
            return ""


@contextlib.contextmanager
def forward(cluster: Cluster, task: str, port: int) -> Iterator[Forward]:
    """Forward a port of a task."""
    begun = Forward(cluster, task, port)
    try:
        yield begun
    finally:
        begun.process.kill()
        begun.process.communicate()


def refusal(cluster: Cluster, task: str, port: int) -> str:
    """Why a port of a task is not forwarded."""
    done = cluster.eva("port-forward", task, f"{port}:0")
    assert done.returncode == 1, done
    return done.stderr


def test_containers_with_one_port_number_are_told_apart(cluster: Cluster, client: Any) -> None:
    first, second = submit(cluster, "first", "8888"), submit(cluster, "second", "8888")
    for job in (first, second):
        until(lambda job=job: cluster.task(job).state == "running", f"{job} runs")
        until_serving(cluster, f"{job}/0", "127.0.0.1:8888")
    assert cluster.task(first).instance == cluster.task(second).instance
    with forward(cluster, first, 8888) as way, forward(cluster, second, 8888) as other:
        for _ in range(3):
            assert (way.answer(), other.answer()) == (f"{first}/0", f"{second}/0")
        # The master is started again: connections are lost, and the forward is not.
        cluster.kill()
        cluster.start()
        until(lambda: way.answer() == f"{first}/0", "the way in is there again")
    for port in (8889, cluster.metrics_port, int(cluster.address.rpartition(":")[2])):
        words = f"no process of {first}/0 listens on port {port}"
        assert words in refusal(cluster, first, port)

    with command(cluster, first) as process:
        (agent,) = cluster.processes_of(cluster.task(first).instance, "eva_worker.agent")
        agent.kill()
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == UNREACHABLE
        assert "went away" in errors
    until(lambda: cluster.eva("exec", first, "--", "true").returncode == 0, "a way in")
    (container,) = containers(client, first)
    programs = [process[-1] for process in container.top()["Processes"]]
    assert not [line for line in programs if "sleep 3600" in line], programs
    assert cluster.task(first).attempt == 1
    with forward(cluster, first, 8888) as way:
        cluster.client.cancel(first)
        cluster.until_ended(first, state="cancelled")
        assert way.answer() == ""
        _, errors = way.process.communicate(timeout=DEADLINE_S)
        assert way.process.returncode == 1
        assert f"job {first} has ended (cancelled)" in errors


def test_members_of_a_gang_on_the_hosts_network_are_told_apart(cluster: Cluster) -> None:
    port = free_port()
    gang = submit(cluster, "gang", f"127.0.0.$((NODE_RANK + 2)):{port}", tasks=2)
    until(lambda: [task.state for task in cluster.job(gang).tasks] == ["running"] * 2, "both run")
    for rank in range(2):
        until_serving(cluster, f"{gang}/{rank}", f"127.0.0.{rank + 2}:{port}")
    assert len({task.instance for task in cluster.job(gang).tasks}) == 1
    with forward(cluster, f"{gang}/0", port) as way, forward(cluster, f"{gang}/1", port) as other:
        for _ in range(3):
            assert (way.answer(), other.answer()) == (f"{gang}/0", f"{gang}/1")
    # The master listens on this machine's network, as the members do.
    for other in (cluster.metrics_port, int(cluster.address.rpartition(":")[2])):
        words = f"no process of {gang}/0 listens on port {other}"
        assert words in refusal(cluster, f"{gang}/0", other)
    several = cluster.eva("port-forward", gang, f"{port}:0")
    assert several.returncode == 1
    assert f"job {gang} has 2 tasks: name one of them" in several.stderr
