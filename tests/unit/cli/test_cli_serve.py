"""The commands that run a master: which settings they hand to it."""

from __future__ import annotations

import io
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import eva_master.app.local
import eva_master.app.master
from eva_client.cli import main
from eva_master.app import config as config_module
from eva_master.app.config import MasterConfig
from eva_master.app.local import client_settings, first_job, say_open


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[MasterConfig]:
    configs: list[MasterConfig] = []
    for name in list(os.environ):
        if name.startswith("EVA_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(config_module, "MASTER_FILE", tmp_path / "master.yaml")
    monkeypatch.setattr(eva_master.app.local, "run_up", configs.append)
    monkeypatch.setattr(eva_master.app.master, "run_master", configs.append)
    return configs


def eva(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_up_keeps_its_state_with_the_user(started: list[MasterConfig], tmp_path: Path) -> None:
    result = eva("up")
    assert result.exit_code == 0, result.output
    assert started[0].state_dir == tmp_path / "state" / "eva"


def test_up_takes_flags(started: list[MasterConfig], tmp_path: Path) -> None:
    result = eva(
        *("up", "--state-dir", str(tmp_path), "--listen", "0.0.0.0:1", "--policy", "no_packing"),
        *("--round-period", "10s", "--metrics-port", "0", "--catalog-only", "c7i"),
        *("--catalog-only", "p3"),
    )
    assert result.exit_code == 0, result.output
    (config,) = started
    assert (config.state_dir, config.listen) == (tmp_path, "0.0.0.0:1")
    assert (config.policy.name, config.round_period) == ("no_packing", 10_000)
    assert (config.metrics_port, config.catalog.only) == (0, ["c7i", "p3"])


def test_master_reads_the_machines_file(started: list[MasterConfig], tmp_path: Path) -> None:
    assert eva("master").exit_code == 0
    (tmp_path / "master.yaml").write_text("cluster: lab\n")
    assert eva("master", "--round-period", "1m").exit_code == 0
    other = tmp_path / "other.yaml"
    other.write_text("cluster: other\n")
    assert eva("master", "--config", str(other)).exit_code == 0
    assert [config.cluster for config in started] == ["eva", "lab", "other"]
    assert started[0].state_dir == Path("/var/lib/eva")
    assert started[1].round_period == 60_000


def test_up_says_how_to_find_a_cluster_that_is_not_where_the_command_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("EVA_CONFIG", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    usual, other = tmp_path / "state" / "eva", tmp_path / "my cluster"
    for directory in (usual, other):
        directory.mkdir(parents=True)
        (directory / "client.yaml").touch()
    assert client_settings(MasterConfig(state_dir=usual)) == ""
    told = shlex.split(client_settings(MasterConfig(state_dir=other)))
    assert told == ["export", f"EVA_CONFIG={other / 'client.yaml'}"]
    # The user's own settings hide those of their cluster.
    (tmp_path / "config" / "eva").mkdir(parents=True)
    (tmp_path / "config" / "eva" / "config.yaml").touch()
    told = shlex.split(client_settings(MasterConfig(state_dir=usual)))
    assert told == ["export", f"EVA_CONFIG={usual / 'client.yaml'}"]


def test_the_state_directory_stands_on_one_line_as_it_is() -> None:
    shown = io.StringIO()
    path = Path("/a long [bold]path/of a/user with/many [parts]/and blanks/in it")
    say_open(Console(file=shown, width=30), "127.0.0.1:7411", path)
    assert shown.getvalue() == f"Eva is up at 127.0.0.1:7411; state in {path}\n"


def test_the_first_job_is_one_of_the_demo_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (job,) = shlex.split(first_job())
    assert "name: digits-mlp" in Path(job).read_text().splitlines()


def test_bad_settings_start_nothing(started: list[MasterConfig], tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("clustr: lab\n")
    result = eva("master", "--config", str(file))
    assert result.exit_code == 2
    assert f"{file}:1:1: clustr: unknown key 'clustr'" in result.stderr
    assert "did you mean 'cluster'?" in result.stderr
    flag = eva("up", "--policy", "evva")
    assert flag.exit_code == 2
    assert "--policy-name: no policy 'evva'" in flag.stderr
    assert started == []
