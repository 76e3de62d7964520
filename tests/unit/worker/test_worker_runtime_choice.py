"""Which runtime a worker has, and what happens when it is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_worker import cli
from eva_worker.errors import RuntimeUnavailable
from eva_worker.runtime.docker import connect
from eva_worker.settings import Settings
from tests.fakes.authority import authority


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Settings of the workers that were started."""
    started: list[Settings] = []
    monkeypatch.setattr(cli, "supervise", lambda settings: started.append(settings) or 0)
    return started


def worker(state: Path, *extra: str, **env: str) -> Result:
    arguments = [
        *("--master", "127.0.0.1:1", "--join", "127.0.0.1:2", "--instance-id", "i-1"),
        *("--ca-file", str(authority().ca_file)),
        *("--instance-type", "p3.2xlarge", "--cpus", "4", "--memory-mib", "1024"),
        *("--state-dir", str(state)),
    ]
    env = {"EVA_WORKER_TOKEN": "secret", **env}
    return CliRunner().invoke(cli.worker, [*arguments, *extra], env=env)


def test_processes_unless_told_otherwise(started: list[Settings], tmp_path: Path) -> None:
    assert worker(tmp_path).exit_code == 0
    assert started[0].runtime == "process"


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
    assert (settings.runtime, settings.docker_image) == ("docker", "tool:1")
    assert settings.docker_host == docker_engine
    assert Settings.from_json(settings.to_json()) == settings
