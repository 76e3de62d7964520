"""Emulated instances whose tasks run in containers: what is left of them, and what they run in."""

from __future__ import annotations

import contextlib
import os
import py_compile
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from eva_master.adapters.local import processes
from eva_master.adapters.local.cloud import Containers
from eva_master.adapters.local.engine import Engine, ready_image
from eva_master.adapters.local.image import Tree, python_tree
from eva_master.adapters.local.records import HostRecords
from eva_master.app.clouds.local.containers import settled
from eva_master.app.clouds.local.section import LocalSection
from eva_master.app.config import (
    IsolationSection,
    MasterConfig,
)
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config, master_model
from eva_master.model.events import InstanceGone
from eva_wire.values.errors import EngineUnavailable, InvalidConfig
from tests.fakes.docker import dockerd
from tests.integration.local.test_local_cloud import ONE, PAUSE, TWO, Bench, options, until

pytestmark = pytest.mark.docker

# Starts a task as an agent does, and lives on.
WORKER = """
import asyncio, sys
from pathlib import Path
from eva_worker.orders import TaskKey
from eva_worker.runtime import TaskSpec
from eva_worker.runtime.docker.runtime import DockerRuntime, connect

def option(name):
    return sys.argv[sys.argv.index(name) + 1]

async def main():
    state = Path(option("--state-dir"))
    (state / "work").mkdir()
    runtime = DockerRuntime(
        state / "runtime",
        connect(option("--docker-host")),
        instance=option("--instance-id"),
        default_image=option("--docker-image"),
    )
    command = "trap '' TERM; touch started; while :; do sleep 600; done"
    await runtime.start(
        TaskSpec(TaskKey("job-1/0", 1), command, {}, state / "work", state / "log")
    )
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def socket(docker_engine: str, tmp_path: Path) -> Path:
    """Leads to the engine's socket, until it is removed."""
    link = tmp_path / "engine.sock"
    link.symlink_to(docker_engine.removeprefix("unix://"))
    return link


@pytest.fixture
def client(docker_engine: str) -> Iterator[Any]:
    with contextlib.closing(docker.DockerClient(base_url=docker_engine)) as client:
        yield client
        for container in client.containers.list(all=True):
            container.remove(force=True)


@pytest.fixture
def bench(socket: Path, client: Any, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "cloud")
    bench.reopen(WORKER, containers=Containers(f"unix://{socket}", dockerd.IMAGE))
    yield bench
    bench.cloud.terminate_all()
    bench.cloud.close()
    assert client.containers.list(all=True) == []


def started(bench: Bench, instance: str = ONE) -> Path:
    """Launch an instance, and wait until its task runs; returns its disk."""
    bench.launch(ONE if instance == ONE else TWO)
    disk = bench.root / instance / "disk"
    until((disk / "work" / "started").exists)
    return disk


def homes(client: Any) -> set[str]:
    """The workers that have containers."""
    return {one.labels["eva.home"] for one in client.containers.list(all=True)}


def test_a_terminated_instance_takes_its_containers_along(bench: Bench, client: Any) -> None:
    one, two = started(bench, ONE), started(bench, TWO)
    # An instance of the same name in another cluster.
    other = {"eva.instance": ONE, "eva.home": "/elsewhere/runtime"}
    client.containers.create(dockerd.IMAGE, "true", labels=other)
    assert homes(client) == {f"{one}/runtime", f"{two}/runtime", "/elsewhere/runtime"}

    bench.terminate(ONE)

    assert homes(client) == {f"{two}/runtime", "/elsewhere/runtime"}
    assert not one.exists()
    assert [process.name() for process in processes.marked(f"{ONE}@{bench.root}")] == []
    bench.terminate(TWO)
    assert homes(client) == {"/elsewhere/runtime"}
    (stranger,) = client.containers.list(all=True)
    stranger.remove()


def test_an_instance_that_dies_takes_its_containers_along(bench: Bench, client: Any) -> None:
    started(bench)
    os.kill(bench.host(), signal.SIGKILL)
    assert bench.mailbox.expect(InstanceGone).instance == ONE
    assert homes(client) == set()


def test_no_instance_is_gone_before_its_containers(bench: Bench, client: Any, socket: Path) -> None:
    disk = started(bench)
    engine = socket.readlink()
    socket.unlink()
    host = bench.host()
    os.kill(host, signal.SIGKILL)
    until(lambda: processes.birth(host) is None)
    # Listed as long as it is not gone.
    assert ONE in bench.listed()
    socket.symlink_to(engine)
    bench.mailbox.expect(InstanceGone)
    assert homes(client) == set()
    assert not disk.exists()


def test_containers_are_removed_by_a_master_with_other_settings(bench: Bench, client: Any) -> None:
    started(bench)
    bench.reopen(PAUSE)
    bench.terminate()
    assert homes(client) == set()


def test_a_container_that_came_too_late_is_removed_at_the_end(bench: Bench, client: Any) -> None:
    disk = started(bench)
    bench.terminate()
    late = {"eva.instance": ONE, "eva.home": f"{disk}/runtime"}
    client.containers.create(dockerd.IMAGE, "true", labels=late)
    bench.cloud.terminate_all()
    assert homes(client) == set()


def test_the_worker_is_told_where_the_engine_is(bench: Bench, socket: Path) -> None:
    bench.reopen(containers=Containers(f"unix://{socket}", "busybox:1"))
    bench.launch()
    said = options(bench.worker()["argv"])
    assert said["--runtime"] == ["docker"]
    assert said["--docker-host"] == [f"unix://{socket}"]
    assert said["--docker-image"] == ["busybox:1"]
    assert HostRecords(bench.root).read()[ONE].engine == f"unix://{socket}"


EXAMPLE = """
import sys, eva_iterator, numpy, sklearn.datasets
print(*sys.version_info[:2], len(sklearn.datasets.load_digits().target))
"""


def test_the_image_of_this_machine_s_python(docker_engine: str, client: Any) -> None:
    """What the examples need is in it, for any user; it is made once."""
    told: list[str] = []
    with Engine(docker_engine) as engine:
        image = ready_image(engine, told.append)
        told.clear()
        assert ready_image(engine, told.append) == image
    assert told == []
    script = f"python -c '{EXAMPLE}' && eva-progress --help && echo b a | tr ' ' '\\n' | sort"
    said = client.containers.run(
        image, entrypoint=["/bin/sh", "-euc", script], user="12345:12345", remove=True
    )
    lines = said.decode().splitlines()
    assert lines[0] == f"{sys.version_info.major} {sys.version_info.minor} 1797"
    assert lines[1].startswith("usage: eva-progress")
    assert lines[-2:] == ["a", "b"]


def test_another_tree_is_another_image(docker_engine: str, tmp_path: Path) -> None:
    with Engine(docker_engine) as engine:
        image = ready_image(engine, lambda _sentence: None)
        tree = python_tree()
        tree.texts["/opt/more"] = "more"
        assert engine.find_image(tree) is None
        tree = python_tree()
        assert engine.find_image(tree) == image


def test_a_module_that_is_compiled_meanwhile_is_no_other_tree(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("ONE = 1\n")
    before = Tree()
    before.add_below(tmp_path, "/opt", frozenset())
    compiled = Path(py_compile.compile(str(tmp_path / "one.py"), doraise=True) or "")
    compiled.with_name(f"{compiled.name}.139876").touch()  # What is being written.
    after = Tree()
    after.add_below(tmp_path, "/opt", frozenset())
    assert set(after.files) - set(before.files) == {f"/opt/__pycache__/{compiled.name}"}
    digest = before.digest()
    assert after.digest() == digest
    os.utime(tmp_path / "one.py", (1, 1))
    assert after.digest() != digest


def test_the_engine_s_socket_is_checked_with_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text("cluster: c\nlocal:\n  docker_host: tcp://10.0.0.1:2375\n")
    with pytest.raises(InvalidConfig) as refused:
        load_master_config(policies=policies(), file=file)
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == ("local.docker_host", 3)


def config(**local: str) -> MasterConfig:
    return master_model()(local=LocalSection(**local))  # type: ignore[arg-type]


def choose(**local: str) -> tuple[LocalSection, str]:
    chosen, why = settled(config(**local), lambda _sentence: None)
    return chosen.section("local"), why


def test_what_tasks_run_in(docker_engine: str) -> None:
    image, away = {"docker_image": dockerd.IMAGE}, {"docker_host": "unix:///nowhere.sock"}
    here = {"docker_host": docker_engine}

    assert choose(runtime="process", **image, **here)[0].runtime == "process"
    local, why = choose(**here)
    assert (local.runtime, "For containers" in why) == ("process", True)
    local, why = choose(**image, **away)
    assert (local.runtime, "unix:///nowhere.sock" in why) == ("process", True)
    local, why = choose(**image, **here)
    assert (local.runtime, local.docker_host) == ("docker", docker_engine)
    assert dockerd.IMAGE in why
    local, why = choose(runtime="docker", **here)
    assert (local.docker_image or "").startswith("sha256:")
    with pytest.raises(InvalidConfig, match=r"nowhere\.sock") as refused:
        choose(runtime="docker", **away)
    assert "local.docker_host" in refused.value.hint


def test_containers_need_a_network_of_their_own_unless_the_machines_is_allowed(
    docker_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = {"runtime": "docker", "docker_image": dockerd.IMAGE, "docker_host": docker_engine}
    with Engine(docker_engine) as engine:
        address = engine.gateway()
    assert address.startswith("10.")

    def no_bridge(self: docker.APIClient, name: str) -> None:
        raise docker.errors.NotFound(f"network {name} not found")

    monkeypatch.setattr(docker.APIClient, "inspect_network", no_bridge)
    with pytest.raises(InvalidConfig, match="no network for containers") as refused:
        choose(**local)
    assert "set isolation.network to host" in refused.value.hint
    allowed = config(**local).model_copy(update={"isolation": IsolationSection(network="host")})
    assert settled(allowed, lambda _sentence: None)[0].section("local").runtime == "docker"


def test_an_engine_that_states_its_subnet_alone_has_the_first_address(
    docker_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does an engine that runs for the first time."""
    pools = [{"Subnet": "fd00::/64"}, {"Subnet": "172.17.0.0/16"}]
    monkeypatch.setattr(docker.APIClient, "inspect_network", lambda *_: {"IPAM": {"Config": pools}})
    with Engine(docker_engine) as engine:
        assert engine.gateway() == "172.17.0.1"


def test_what_tasks_read_is_where_their_network_reaches_it(
    bench: Bench, docker_engine: str
) -> None:
    with Engine(docker_engine) as engine:
        address = engine.gateway()
    bench.reopen(containers=Containers(docker_engine, dockerd.IMAGE, address))
    bench.launch()
    said = options(bench.worker()["argv"])
    assert said["--task-env"][0].startswith(f"EVA_DATA_SERVER=http://{address}:")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"KernelVersion": "6.6.0-linuxkit"}, "virtual machine"),
        ({"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}, "rootless"),
        ({"SecurityOptions": ["name=userns"]}, "userns"),
    ],
)
def test_an_engine_that_does_not_share_files(
    docker_engine: str, changes: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = docker.DockerClient.info
    monkeypatch.setattr(docker.DockerClient, "info", lambda self: {**info(self), **changes})
    with pytest.raises(EngineUnavailable, match=reason):
        Engine(docker_engine)


def test_an_engine_elsewhere() -> None:
    with pytest.raises(EngineUnavailable, match="another machine"):
        Engine("tcp://10.0.0.1:2375")
