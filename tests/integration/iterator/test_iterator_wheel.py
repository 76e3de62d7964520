"""The wheel: builds, installs with grpcio and protobuf alone, and runs a loop."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.fakes.iterator_agent import RecordingAgent
from tests.fakes.patience import DEADLINE_S

SOURCE = Path(__file__).parents[3] / "iterator_sdk"


def run(*command: str | Path, **environ: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EVA_", "PYTHON"))}
    done = subprocess.run(
        command,
        env={**inherited, **environ},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", directory)
    run(sys.executable, *build, SOURCE)
    (path,) = directory.glob("*.whl")
    return path


def test_has_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.partition("/")[0] for name in names}
    assert packages == {"eva_iterator", "eva_iterator-0.1.0.dist-info"}
    assert "eva_iterator/py.typed" in names


def test_runs_a_loop_where_nothing_else_is_installed(
    wheel: Path, tmp_path: Path, iterator_agent: RecordingAgent
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    pip = ("-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check")
    run(sys.executable, *pip, "install", wheel)
    program = """
from eva_iterator import EvaIterator
import eva_iterator, sys
assert eva_iterator.__file__.startswith(sys.prefix)
print(sum(EvaIterator([1, 2, 3], total=3)))
"""
    assert run(python, "-c", program) == "6\n"
    assert iterator_agent.reports == []
    assert run(python, "-c", program, EVA_SOCKET=str(iterator_agent.socket)) == "6\n"
    assert (iterator_agent.last.steps, iterator_agent.last.total_steps) == (3, 3)
    run(tmp_path / "venv/bin/eva-progress", "--steps", "1", EVA_SOCKET=str(iterator_agent.socket))
    assert "eva-progress" in iterator_agent.sources
