"""A machine that nobody launched: it joins, works, is cut off, and comes back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.cluster import EVA, Cluster, arguments, until
from tests.e2e.conftest import Clusters
from tests.e2e.test_deaths import ONE_TYPE, alone, attempts, resumed
from tests.fakes.patience import DEADLINE_S

FENCE_S = 10
NODE = {
    "type": "own.small",
    "capacity": {"cpus": 1, "memory": "512MiB"},
    "usd_per_hour": 0,
    "fence_after": f"{FENCE_S}s",
}


@pytest.fixture
def cluster(make_cluster: Clusters) -> Cluster:
    return make_cluster(catalog=ONE_TYPE, settings={"nodes": {"rack1": NODE}})


class Machine:
    """A machine with a worker of its own."""

    def __init__(
        self,
        cluster: Cluster,
        token: Path | None,
        name: str = "rack1",
        type_: str = "own.small",
        *flags: str,
    ) -> None:
        self.state = cluster.home / name
        self._log = (cluster.home / f"{name}.log").open("ab")
        self.worker = subprocess.Popen(
            [*EVA, "worker", *options(token, self.state, type_)[0 if token else -2 :], *flags],
            env={**os.environ, "EVA_ITERATOR_DEBUG": ""},
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Supervisor and agent."""
        supervisor = psutil.Process(self.worker.pid)
        return [
            supervisor,
            *(it for it in supervisor.children() if "eva_worker.agent" in arguments(it)),
        ]

    def signal(self, number: int) -> None:
        """Send a signal to both, as far as they run."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def close(self) -> None:
        """Leave nothing behind."""
        try:
            if self.worker.poll() is None:
                self.signal(signal.SIGCONT)
                self.worker.terminate()
                self.worker.wait(DEADLINE_S)
        finally:
            self.worker.kill()
            self._log.close()


def options(token: Path | None, state: Path, type_: str = "own.small") -> list[str]:
    return ["--join", str(token), "--type", type_, "--state-dir", str(state)]


@pytest.fixture
def token(cluster: Cluster) -> Path:
    path = cluster.home / "rack1.token"
    made = cluster.eva("node", "token", "rack1", "--out", str(path))
    assert made.returncode == 0, made.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    return path


@pytest.fixture
def machine(cluster: Cluster, token: Path) -> Iterator[Machine]:
    there = Machine(cluster, token)
    try:
        until(lambda: cluster.instances().get("rack1"), "rack1 joins")
        yield there
    finally:
        there.close()


@pytest.mark.long
def test_a_second_worker_with_a_copy_of_the_state_is_refused_until_the_first_has_ended(
    cluster: Cluster, machine: Machine
) -> None:
    shutil.copytree(
        machine.state, cluster.home / "copy", symlinks=True, ignore=lambda *_: {"tasks", "runtime"}
    )
    copy = Machine(cluster, None, "copy")
    log = cluster.home / "copy.log"
    try:
        until(lambda: b"another agent is connected as 'rack1'" in log.read_bytes(), "it is refused")
        assert b"session up" not in log.read_bytes()
        assert b"a state directory belongs to one machine" in log.read_bytes()
        machine.worker.terminate()
        machine.worker.wait(DEADLINE_S)
        until(lambda: b"session up" in log.read_bytes(), "the copy comes in once nobody is there")
    finally:
        copy.close()


@pytest.mark.waits
def test_a_node_that_is_cut_off_stops_its_tasks_before_others_start_them(
    cluster: Cluster, machine: Machine
) -> None:
    job = cluster.submit("steady", resources={"cpus": 1, "memory": "256MiB"})
    cluster.until_running(job)
    assert cluster.task(job).instance == "rack1", "what costs nothing comes first"
    assert not cluster.records(), "nothing was launched"
    until(lambda: cluster.task(job).generation >= 1, "a checkpoint is stored")
    program = psutil.Process(cluster.lines(job)[0].pid)

    machine.signal(signal.SIGSTOP)  # The network could not fail more thoroughly.

    program.wait(DEADLINE_S)
    assert all(it.status() == psutil.STATUS_STOPPED for it in machine.processes())
    ended_ms = cluster.lines(job)[-1].at_ms
    until(lambda: cluster.task(job).attempt == 2, "it starts elsewhere")
    cluster.until_running(job)
    assert cluster.task(job).instance != "rack1"
    lines = cluster.lines(job)
    second = next(line for line in lines if line.event == "start" and line.attempt == 2)
    assert second.at_ms > ended_ms
    assert resumed(lines, 2)
    gone = cluster.instances()["rack1"]
    assert gone.state == "gone"
    assert "silent" in gone.reason

    machine.signal(signal.SIGCONT)

    until(lambda: cluster.instances()["rack1"].state == "ready", "rack1 comes back")
    cluster.finish(job)
    cluster.until_ended(job)
    lines = cluster.lines(job)
    assert alone(lines)
    assert attempts(lines) in ([1, 2], [1, 2, 3]), "it may move back to what costs nothing"
    assert cluster.job(job).failures == 0


@pytest.mark.long
def test_a_second_machine_and_one_that_is_too_small_are_refused(
    cluster: Cluster, machine: Machine, token: Path
) -> None:
    del machine
    again = join(token, cluster.home / "other")
    assert again.returncode == 2
    assert "joined as rack1 with this token already" in again.stderr
    assert "eva node remove rack1" in again.stderr
    told = cluster.eva("node", "token", "rack1")
    assert told.returncode != 0
    assert "has joined already" in told.stderr
    assert cluster.instances()["rack1"].state == "ready"


def test_a_machine_that_is_smaller_than_stated_is_refused(make_cluster: Clusters) -> None:
    huge = {**NODE, "capacity": {"cpus": 4096, "memory": "512MiB", "gpus": 512}}
    cluster = make_cluster(catalog=ONE_TYPE, settings={"nodes": {"rack1": huge}})
    made = cluster.eva("node", "token", "rack1")
    refused = join(made.stdout.strip(), cluster.home / "rack1")
    assert refused.returncode == 2
    assert "it lacks 512 GPUs" in refused.stderr
    assert "nodes.rack1.capacity" in refused.stderr
    assert "rack1" not in cluster.instances()


@pytest.mark.long
def test_a_node_is_drained_and_removed(cluster: Cluster, machine: Machine) -> None:
    job = cluster.submit("steady", resources={"cpus": 1, "memory": "256MiB"})
    cluster.until_running(job)
    assert cluster.eva("node", "drain", "rack1").returncode == 0
    other = cluster.submit("other", resources={"cpus": 1, "memory": "256MiB"})
    cluster.until_running(other)
    assert cluster.task(other).instance != "rack1"
    assert cluster.task(job).instance == "rack1", "what runs there finishes there"
    refused = cluster.eva("node", "remove", "rack1", "-y")
    assert refused.returncode != 0
    assert "1 task is on rack1" in refused.stderr
    cluster.finish(job, other)
    cluster.until_ended(job, other)
    assert cluster.eva("node", "remove", "rack1", "-y").returncode == 0
    assert cluster.instances()["rack1"].state == "gone"
    agent = machine.processes()[-1]
    agent.kill()  # The next one asks to come back, and is refused.
    log = cluster.home / "rack1.log"
    until(lambda: "is not rack1 any more" in log.read_text(), "its worker is told")
    assert cluster.instances()["rack1"].state == "gone"


@pytest.mark.long
def test_a_machine_that_says_another_type_is_refused(cluster: Cluster, token: Path) -> None:
    refused = join(token, cluster.home / "rack1", "own.large")
    assert refused.returncode == 2
    assert "rack1 is of type own.small, not 'own.large'" in refused.stderr
    assert "--type own.small" in refused.stderr
    no_token = join("eva-node.damaged", cluster.home / "rack1")
    assert no_token.returncode == 2
    assert "damaged" in no_token.stderr
    assert "rack1" not in cluster.instances()


def join(token: object, state: Path, type_: str = "own.small") -> subprocess.CompletedProcess[str]:
    """Run a worker that is refused."""
    command = [sys.executable, "-m", "eva_client.cli", "worker"]
    told = [*command, "--join", str(token), "--type", type_, "--state-dir", str(state)]
    return subprocess.run(told, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
