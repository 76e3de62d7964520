"""Sockets of attempts are where their names fit, and leave nothing there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eva_worker.errors import StartFailed
from eva_worker.files.beneath import Directory, remove_tree
from eva_worker.tasks.socket_places import (
    hold,
    make_socket_directory,
    remove_abandoned,
    socket_path,
)
from tests.fakes.paths import short_tempdir

ROOT = Path(__file__).parents[3]


def test_socket_is_in_the_tasks_directory_if_its_name_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert socket_path(Path("/state/1")) == Path("/state/1/run/eva.sock")
    deep = Path("/") / ("x" * 100)
    with tempfile.TemporaryDirectory(dir=short_tempdir()) as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        path = socket_path(deep)
        assert path.parents[1] == Path(short)
        assert path == socket_path(deep) != socket_path(deep / "other")
        make_socket_directory(path, deep)
        assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["abcdefgh", "a-user-whose-name-is-of-32-bytes"])
def test_socket_fits_whatever_the_user_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a long runtime directory nor a long temporary directory is in the way."""
    long = f"/var/folders/{name}/{'y' * 60}"
    deep = Path("/") / ("x" * 100)
    for runtime, temporary in ((long, "/tmp"), (long, long), ("", long)):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        path = socket_path(deep)
        assert len(os.fsencode(path)) < 108
        assert path.parents[1] == Path("/tmp")
        assert path != socket_path(deep / "other")


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short directory in which the sockets of attempts with long paths are."""
    with tempfile.TemporaryDirectory(dir=short_tempdir()) as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield Path(short)


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    """The directory of an attempt with a long path."""
    path = tmp_path / ("x" * 100)
    path.mkdir()
    return path


@pytest.mark.parametrize("below", [True, False])
def test_a_socket_directory_that_is_a_link_is_refused(
    below: bool, base: Path, attempt: Path, tmp_path: Path
) -> None:
    path = attempt / "run" / "eva.sock" if below else socket_path(attempt)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o755)
    path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartFailed):
        make_socket_directory(path, attempt)
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755
    assert not any((tmp_path / "elsewhere").iterdir())


def test_what_an_attempt_leaves_elsewhere_goes_when_its_own_files_are_gone(
    base: Path, attempt: Path
) -> None:
    socket = socket_path(attempt)
    make_socket_directory(socket, attempt)
    socket.write_text("of an agent that was killed")
    remove_abandoned()
    assert socket.exists(), "the next agent of this state takes it over"
    make_socket_directory(socket, attempt)  # As that one does.
    remove_tree(attempt)
    remove_abandoned()
    assert not any(base.iterdir())


def test_an_agent_keeps_its_sockets_though_another_does_not_see_its_files(
    base: Path, attempt: Path
) -> None:
    socket = socket_path(attempt)
    make_socket_directory(socket, attempt)
    remove_tree(attempt)
    with Directory.at(socket.parent) as held:
        hold(held)
        remove_abandoned()
        assert socket.parent.exists()
    remove_abandoned()
    assert not socket.parent.exists()


def test_nothing_but_abandoned_directories_is_removed(
    base: Path, attempt: Path, tmp_path: Path
) -> None:
    """Not those without an owner, those of other names, files, nor what a link leads to."""
    name = socket_path(attempt).parent.name
    (base / "eva-of-somebody").mkdir()
    (base / "eva-of-somebody" / "of").symlink_to(tmp_path / "nowhere")
    (base / f"{name[:-1]}-").mkdir()
    (base / name).mkdir()
    (base / f"eva-{'0' * 20}").write_text("a file")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "of").symlink_to(tmp_path / "nowhere")
    (base / f"eva-{'1' * 20}").symlink_to(outside)
    before = sorted(base.rglob("*"))
    remove_abandoned()
    assert sorted(base.rglob("*")) == before
    assert (outside / "of").is_symlink()


_AGENT = """
import os, signal, sys
from pathlib import Path
from eva_worker.files.beneath import Directory
from eva_worker.tasks.socket_places import hold, make_socket_directory, socket_path
attempt = Path(sys.argv[1])
socket = socket_path(attempt)
make_socket_directory(socket, attempt)
hold(Directory.at(socket.parent))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_agent_that_was_killed_holds_nothing(base: Path, attempt: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _AGENT, str(attempt)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert socket_path(attempt).parent.is_dir()
    remove_tree(attempt)
    remove_abandoned()
    assert not any(base.iterdir())
