"""`eva demo` in an environment of wheels: no checkout, and nothing that only examples need."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.fakes.installed import Installed
from tests.fakes.paths import short_tempdir


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the demo makes its directory; short, for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir=short_tempdir()) as directory:
        yield Path(directory)


def test_the_programs_of_the_demo_come_with_the_wheel(installed: Installed, tmp_path: Path) -> None:
    asked = (
        "import eva_master, sys; from eva_master.app.demo.jobs import *\n"
        "print(eva_master.__file__)\n"
        "for job in FIRST_WAVE + SECOND_WAVE: job.file(); print(job.folder)\n"
        "print(FIRST_JOB)"
    )
    answer = installed.run(installed.python, "-c", asked, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    package, *folders, job = map(Path, answer.stdout.splitlines())
    assert package.is_relative_to(installed.home)
    assert {folder.parent for folder in folders} == {package.parent / "app" / "demo" / "examples"}
    assert not list(installed.packages.glob("examples"))
    assert yaml.safe_load(job.read_text())["name"] == "digits-mlp"


@pytest.mark.long
@pytest.mark.waits
@pytest.mark.timeout(1_200)
def test_the_demo_comes_to_its_end(installed: Installed, temporary: Path, tmp_path: Path) -> None:
    demo = installed.run(
        *(installed.eva, "demo", "--json"),
        cwd=tmp_path,
        TMPDIR=str(temporary),
        DOCKER_HOST="unix:///nowhere/docker.sock",
    )
    assert demo.returncode == 0, demo.stderr
    report = json.loads(demo.stdout)
    assert len(report["jobs"]) == 9
    assert {job["state"] for job in report["jobs"]} == {"succeeded"}
    assert any(resumption["continued"] for resumption in report["resumptions"])
    assert list(temporary.iterdir()) == []
