"""The programs that `eva demo` runs, where only wheels are; the demo itself is in `test_demo`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.fakes.installed import Installed


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed") / "venv")


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
