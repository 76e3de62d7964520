"""Containers of an owned node end with its lease, with the agent stopped: the supervisor's part."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from eva_worker.orders import TaskKey
from eva_worker.process import lease
from eva_worker.runtime import TaskSpec
from eva_worker.runtime.docker.fence import kill_all
from eva_worker.runtime.docker.runtime import DockerRuntime, connect
from tests.fakes.docker import dockerd
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority

pytestmark = pytest.mark.docker

KEY = TaskKey("job-1/0", 1)
EVA = (sys.executable, "-m", "eva_client.cli")


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(connect(docker_engine)) as client:
        yield client
        for container in client.containers.list(all=True, ignore_removed=True):
            container.remove(force=True)


@pytest.fixture
async def make_runtime(docker_engine: str) -> AsyncIterator[Callable[[Path], DockerRuntime]]:
    made: list[DockerRuntime] = []

    def make(root: Path) -> DockerRuntime:
        runtime = DockerRuntime(
            root, connect(docker_engine), instance="rack1", default_image=dockerd.IMAGE
        )
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        runtime.close()


def _spec(home: Path) -> TaskSpec:
    (home / "work").mkdir(parents=True)
    return TaskSpec(KEY, "sleep 1000", {}, home / "work", home / "log")


async def test_all_of_a_worker_and_nobody_elses(
    tmp_path: Path,
    docker_engine: str,
    client: Any,
    make_runtime: Callable[[Path], DockerRuntime],
) -> None:
    ours, others = (make_runtime(tmp_path / name / "runtime") for name in ("ours", "others"))
    await ours.start(_spec(tmp_path / "a"))
    await others.start(_spec(tmp_path / "b"))
    root = tmp_path / "ours" / "runtime"
    async with asyncio.timeout(DEADLINE_S):
        while not await asyncio.to_thread(kill_all, docker_engine, root, instance="rack1"):
            pass
        ended = await ours.wait(KEY)
    assert (ended.code, ended.stopped) == (-signal.SIGKILL, True)
    assert len(client.containers.list()) == 1
    await others.kill(KEY)


async def test_an_engine_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/nothing.sock"
    assert not kill_all(nowhere, tmp_path / "runtime", instance="rack1")


async def test_the_supervisor_acts_with_its_agent_stopped(
    tmp_path: Path,
    docker_engine: str,
    client: Any,
    make_runtime: Callable[[Path], DockerRuntime],
) -> None:
    state = tmp_path / "state"
    await make_runtime(state / "runtime").start(_spec(tmp_path / "a"))
    _joined(state)
    lease.write(str(state / "lease"), (1, lease.now_ms() + 3_600_000))
    options = ("--runtime", "docker", "--emulated", "--docker-host", docker_engine)
    worker = subprocess.Popen(
        [*EVA, "worker", "--state-dir", str(state), *options],
        env={**os.environ, "EVA_WORKER_TASK_USER": "worker"},
        start_new_session=True,
    )
    try:
        agent = await asyncio.to_thread(_agent, worker.pid)
        agent.suspend()
        # A shorter one, as if the rest had gone by.
        lease.write(str(state / "lease"), (1, lease.now_ms() + 500))
        os.kill(worker.pid, signal.SIGALRM)  # It had set its timer by the longer one.
        async with asyncio.timeout(DEADLINE_S):
            while client.containers.list():
                await asyncio.sleep(0.05)
        assert (state / "runtime" / KEY.path / "stop.json").exists()
    finally:
        worker.kill()
        worker.wait()


def _joined(state: Path) -> None:
    """What a worker keeps of a node that has joined."""
    identity = state / "identity"
    identity.mkdir(parents=True)
    key, certificate = authority().agent("rack1")
    (identity / "key.pem").write_bytes(key)
    (identity / "certificate.pem").write_bytes(certificate)
    (identity / "authorities.pem").write_bytes(authority().certificates)
    node = {
        "name": "rack1",
        "type": "own.small",
        "workers": "127.0.0.1:1",
        "gpus": 0,
        "milli_cpus": 1000,
        "memory_mib": 512,
        "environment": {},
    }
    (state / "node.json").write_text(json.dumps(node))


def _agent(supervisor: int) -> psutil.Process:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for child in psutil.Process(supervisor).children():
            with contextlib.suppress(psutil.Error):
                if "eva_worker.agent" in child.cmdline():
                    return child
        time.sleep(0.05)
    raise AssertionError("no agent")
