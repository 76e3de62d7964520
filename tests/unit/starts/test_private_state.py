"""State directories are for their user alone: made so, mended, or refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eva_client import settings as client
from eva_master.app.config import MasterConfig
from eva_master.app.state_dir import keep_files_private, make_state
from eva_wire.values.errors import InvalidConfig
from eva_worker import agent

FILES = ("journal.db", "pki/ca.key", "objects/blobs/ab/cd", "cloud/i-1/log", "client.yaml")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory as an earlier master made it in one of mode 0755."""
    for name in FILES:
        (tmp_path / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "state" / name).write_text("secret")
    for path in (tmp_path / "state", *(tmp_path / "state").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path / "state"


def config(state: Path, **more: object) -> MasterConfig:
    return MasterConfig.model_validate({"state_dir": state, **more})


def open_to_others(top: Path) -> list[str]:
    paths = (top, *top.rglob("*"))
    return [str(path) for path in paths if path.lstat().st_mode & 0o077 and not path.is_symlink()]


def test_a_new_state_directory_is_its_users_alone(tmp_path: Path) -> None:
    make_state(config(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711, 0o775, 0o700])
def test_one_that_is_there_is_closed_with_all_that_is_in_it(state: Path, mode: int) -> None:
    state.chmod(mode)
    with capture_logs() as logs:
        make_state(config(state))
    assert open_to_others(state) == []
    assert (state / "journal.db").read_text() == "secret"
    assert [it["log_level"] for it in logs] == ([] if mode == 0o700 else ["warning"])


def test_files_are_looked_through_once(state: Path) -> None:
    make_state(config(state))
    (state / "journal.db").chmod(0o640)
    make_state(config(state))
    assert (state / "journal.db").stat().st_mode & 0o777 == 0o640
    state.chmod(0o755)
    make_state(config(state))
    assert open_to_others(state) == []


def test_neither_links_nor_disks_of_instances_are_followed(state: Path, tmp_path: Path) -> None:
    """A task's user needs the directory of its socket."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o755)
    (state / "link").symlink_to(tmp_path / "elsewhere")
    (state / "cloud" / "i-1" / "disk" / "run").mkdir(parents=True)
    (state / "cloud" / "i-1" / "disk" / "run").chmod(0o710)
    make_state(config(state))
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755
    assert (state / "cloud" / "i-1" / "disk" / "run").stat().st_mode & 0o777 == 0o710


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o707])
def test_a_directory_that_everybody_may_change_is_refused(state: Path, mode: int) -> None:
    state.chmod(mode)
    with pytest.raises(InvalidConfig, match="can be changed by every user") as caught:
        make_state(config(state))
    assert "a directory of its own" in caught.value.hint
    assert state.stat().st_mode & 0o7777 == mode


def test_an_empty_one_that_everybody_may_change_is_closed(tmp_path: Path) -> None:
    """A volume of a container is one."""
    tmp_path.chmod(0o777)
    make_state(config(tmp_path))
    assert tmp_path.stat().st_mode & 0o7777 == 0o700


def test_one_for_all_users_is_refused_though_it_is_empty(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(InvalidConfig, match="can be changed by every user"):
        make_state(config(tmp_path))


@pytest.mark.usefixtures("usual_mask")
def test_a_service_lets_workers_read_a_store_that_is_elsewhere(tmp_path: Path) -> None:
    os.umask(0o077)
    keep_files_private(config(tmp_path, objects="file:///mnt/shared"))
    (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_directory_that_cannot_be_closed_is_refused(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(InvalidConfig, match="cannot be closed") as caught:
        make_state(config(state))
    assert "chmod 700" in caught.value.hint


@pytest.fixture
def usual_mask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_mask")
@pytest.mark.parametrize(
    ("objects", "mode"),
    [
        (None, 0o600),
        ("s3://bucket/x", 0o600),
        ("file://{state}/objects", 0o600),
        ("file:///mnt/shared", 0o644),
    ],
)
def test_files_that_a_master_makes_are_private_unless_others_need_them(
    tmp_path: Path, objects: str | None, mode: int
) -> None:
    more = {"objects": objects.format(state=tmp_path)} if objects else {}
    keep_files_private(config(tmp_path, **more))
    (tmp_path / "file").touch()
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_the_directory_of_the_users_settings_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("EVA_CONFIG", raising=False)
    (tmp_path / "eva").mkdir()
    (tmp_path / "eva").chmod(0o775)
    (tmp_path / "eva" / "config.yaml").write_text("token: eva_1\n")
    (tmp_path / "eva" / "config.yaml").chmod(0o600)
    client.load_client_config()
    assert (tmp_path / "eva").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [None, 0o755, 0o770, 0o777])
def test_a_workers_state_directory_is_its_users_alone(tmp_path: Path, mode: int | None) -> None:
    home = tmp_path / "worker"
    if mode is not None:
        home.mkdir()
        home.chmod(mode)
    with agent._alone(home):
        assert home.stat().st_mode & 0o777 == 0o700


def test_a_worker_says_that_its_state_is_in_a_directory_for_all_users(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with capture_logs() as logs, agent._alone(tmp_path):
        assert logs[0]["log_level"] == "error"
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777


def test_the_shipped_service_keeps_its_state_private() -> None:
    unit = Path(__file__).parents[3] / "deploy" / "systemd" / "eva-master.service"
    assert {"StateDirectoryMode=0700", "UMask=0077"} <= set(unit.read_text().split())
