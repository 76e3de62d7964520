"""Which runtime a worker has, and what happens when it is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import eva_worker.runtime
from eva_worker import cli
from eva_worker.errors import RuntimeUnavailable
from eva_worker.isolation import Isolation
from eva_worker.runtime.docker.runtime import connect
from eva_worker.runtime.registry import RuntimeProvider, checked, runtime, runtimes
from eva_worker.settings import Settings
from tests.fakes.rpc.authority import authority


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Settings of the workers that were started."""
    started: list[Settings] = []
    monkeypatch.setattr(cli, "supervise", lambda settings: started.append(settings) or 0)
    return started


def worker(state: Path, *extra: str, **env: str) -> Result:
    arguments = [
        *("--master", "127.0.0.1:1", "--enrol", "127.0.0.1:2", "--instance-id", "i-1"),
        *("--ca-file", str(authority().ca_file)),
        *("--instance-type", "p3.2xlarge", "--cpus", "4", "--memory-mib", "1024"),
        *("--state-dir", str(state)),
    ]
    env = {"EVA_WORKER_TOKEN": "secret", **env}
    return CliRunner().invoke(cli.worker, [*arguments, *extra], env=env)


def test_processes_unless_told_otherwise(started: list[Settings], tmp_path: Path) -> None:
    assert worker(tmp_path).exit_code == 0
    assert (started[0].runtime, started[0].runtime_options) == ("process", {})
    assert started[0].isolation == Isolation("unprivileged", "own", 4_096, 65_536)


def test_what_tasks_are_kept_from_may_be_said(started: list[Settings], tmp_path: Path) -> None:
    given = {"USER": "worker", "NETWORK": "host", "PROCESSES": "99", "OPEN_FILES": "100"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(f"EVA_WORKER_TASK_{name}", value)
        assert worker(tmp_path).exit_code == 0
    assert started[0].isolation == Isolation("worker", "host", 99, 100)
    assert Settings.from_json(started[0].to_json()) == started[0]


def test_a_runtime_that_there_is_not_is_refused_with_those_that_there_are(
    started: list[Settings], tmp_path: Path
) -> None:
    result = worker(tmp_path, "--runtime", "podman")
    assert result.exit_code == 2
    assert "'podman' is not one of 'docker', 'process'" in result.output
    assert not started
    with pytest.raises(RuntimeUnavailable, match="no runtime 'podman', only docker and process"):
        runtime("podman")


def test_every_folder_is_a_runtime() -> None:
    folder = Path(eva_worker.runtime.__file__).parent
    assert set(runtimes()) == {it.parent.name for it in folder.glob("*/__init__.py")}


METHODS = sorted(RuntimeProvider.__abstractmethods__)


@pytest.mark.parametrize("method", METHODS)
def test_a_runtime_without_one_of_the_methods_is_none(method: str) -> None:
    rest = {name: lambda *_: None for name in METHODS if name != method}
    with pytest.raises(TypeError, match=method):
        type("Half", (RuntimeProvider,), rest)()


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"options": {}}, "has no name"),
        ({"name": "toy"}, "has no options"),
        ({"name": "docker", "options": {}}, "is named 'docker'"),
        ({"name": "toy", "options": {"--image": {}}}, "--image does not begin with --toy-"),
    ],
)
def test_a_runtime_that_does_not_say_all_is_none(stated: dict[str, Any], said: str) -> None:
    methods = {name: lambda *_: None for name in METHODS}
    with pytest.raises(TypeError, match=said):
        checked([("toy", type("Toy", (RuntimeProvider,), {**methods, **stated})())])
    with pytest.raises(TypeError, match="is not a RuntimeProvider"):
        checked([("toy", object())])


def test_worker_does_not_start_without_an_engine(started: list[Settings], tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/none.sock"
    result = worker(tmp_path, "--docker-host", url, EVA_WORKER_RUNTIME="docker")
    assert result.exit_code == 1
    assert f"no Docker engine at {url}" in result.output
    assert not started
    with pytest.raises(RuntimeUnavailable, match=re.escape(url)):
        connect(url)


@pytest.mark.docker
def test_containers_where_an_engine_answers(
    started: list[Settings], docker_engine: str, tmp_path: Path
) -> None:
    result = worker(
        tmp_path, "--runtime", "docker", "--docker-image", "tool:1", "--docker-host", docker_engine
    )
    assert result.exit_code == 0, result.output
    [settings] = started
    assert settings.runtime == "docker"
    assert settings.runtime_options == {"docker_image": "tool:1", "docker_host": docker_engine}
    assert Settings.from_json(settings.to_json()) == settings
