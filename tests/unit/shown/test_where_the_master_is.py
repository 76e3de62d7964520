"""Messages when the master's settings are not there, or the token's file is empty."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from eva_client.settings import CLIENT_FILE, load_client_config, remember_client_file
from eva_master.adapters.rpc.server.shown.storage import notes_on_gpus
from eva_master.app.clouds.local import PROVIDER
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import Family, Workload


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("EVA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_settings_that_a_cluster_has_not_written_yet_are_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "a place" / CLIENT_FILE
    monkeypatch.setenv("EVA_CONFIG", str(file))
    with pytest.raises(InvalidConfig, match="is not there") as refusal:
        load_client_config()
    assert "wait a moment if it is being started" in str(refusal.value.hint)
    assert f"eva up --state-dir '{home / 'a place'}'" in str(refusal.value.hint)


def test_a_cluster_with_a_state_directory_of_its_own_is_named(home: Path) -> None:
    with pytest.raises(InvalidConfig) as nowhere:
        load_client_config().authorities()
    assert "start a master with `eva up`" in str(nowhere.value.hint)
    file = home / "elsewhere" / CLIENT_FILE
    file.parent.mkdir()
    file.write_text("address: a:1\n")
    remember_client_file(file)
    with pytest.raises(InvalidConfig) as told:
        load_client_config().authorities()
    assert f"export EVA_CONFIG={shlex.quote(str(file))}" in str(told.value.hint)
    file.unlink()
    with pytest.raises(InvalidConfig) as gone:
        load_client_config().authorities()
    assert gone.value.hint == nowhere.value.hint


def test_what_stands_in_the_pointer_is_not_trusted(home: Path) -> None:
    directory = home / "state" / "eva"
    directory.mkdir(parents=True)
    for content in (b"\xff\xfe\x00", b"x" * 100_000, b"relative/client.yaml\n", b"\n"):
        (directory / "last-client").write_bytes(content)
        with pytest.raises(InvalidConfig, match="ca_file"):
            load_client_config().authorities()


def test_an_empty_token_file_is_called_empty(home: Path) -> None:
    empty = home / "token"
    empty.touch(mode=0o644)
    with pytest.raises(InvalidConfig, match="is empty"):
        load_client_config({"token_file": str(empty)}).secret()


@pytest.mark.parametrize(("gpus", "nominal", "told"), [(1, True, 1), (1, False, 0), (0, True, 0)])
def test_a_job_is_told_that_gpus_are_nominal(gpus: int, nominal: bool, told: int) -> None:
    need = Resources(gpus, 1_000, 1_024)
    task = TaskSpec(Workload("w"), Program("true"), ((Family("p3"), need),))
    notes = notes_on_gpus(JobSpec("a", "me", (task,)), nominal=nominal)
    assert len(notes) == told
    assert all("its program finds none" in note for note in notes)


def test_the_machines_own_gpus_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Path] = []
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(found))
    assert PROVIDER.has_nominal_gpus(None)  # type: ignore[arg-type]
    found.append(Path("/dev/nvidia0"))
    assert not PROVIDER.has_nominal_gpus(None)  # type: ignore[arg-type]
