"""Forks of a process that has imported `eva` stand for processes that import it themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.processes.preloaded import MODULE, Fork, same_python

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("EVA_")}


@pytest.mark.parametrize(
    "arguments", [["--version"], ["nonsense"], ["status"], ["events", "--last"]]
)
def test_a_fork_says_and_returns_the_same(tmp_path: Path, arguments: list[str]) -> None:
    env = {**ENVIRONMENT, "EVA_CONFIG": str(tmp_path / "none.yaml"), "COLUMNS": "60"}
    output, errors = tmp_path / "output", tmp_path / "errors"
    output.touch()
    errors.touch()
    code = Fork(arguments, env, output, errors).wait()
    other = subprocess.run(
        [sys.executable, "-m", MODULE, *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (code, output.read_text(), errors.read_text()) == (
        other.returncode,
        other.stdout,
        other.stderr,
    )


def test_a_killed_fork_tells_the_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    fork = Fork(["up", "--state-dir", str(tmp_path / "state")], ENVIRONMENT, log, log, session=True)
    assert fork.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0)
    fork.kill()
    assert fork.wait() == fork.returncode == -signal.SIGKILL


def test_variables_of_python_need_a_process() -> None:
    assert same_python({**os.environ, "COLUMNS": "60"})
    assert not same_python({**os.environ, "PYTHONUTF8": "0"})
    assert not same_python({**os.environ, "TZ": "Asia/Kathmandu"})
