"""`make quick`: the tests that it chooses for a change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import quick

IMPORTERS = {
    "eva_master.model.job": ["eva_master.packing.fit", "tests.fakes.jobs"],
    "eva_master.packing.fit": ["eva_master.control.loop"],
    "eva_master.control.loop": [],
}
TESTS = {
    "test_job.py": "from eva_master.model import job",
    "test_fit.py": "import eva_master.packing.fit",
    "test_loop.py": "def test():\n    from eva_master.control.loop import Loop",
    "test_fake.py": "from tests.fakes.jobs import job",
    "test_page.py": "PAGE = 'docs/howto/jobs.md'",
    "test_other.py": "from eva_master.model.job_list import jobs",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of a few unit tests."""
    folder = tmp_path / quick.UNIT / "room"
    folder.mkdir(parents=True)
    for name, text in TESTS.items():
        (folder / name).write_text(text)
    return tmp_path


def chosen(repository: Path, *names: str) -> dict[str, int]:
    """Names of the chosen tests, and how near each is."""
    near = quick.nearest(repository, names, IMPORTERS)
    return {Path(name).name: distance for name, distance in near.items()}


def test_tests_are_chosen_by_their_imports(repository: Path) -> None:
    """The loop is three imports away from the job: too far."""
    near = chosen(repository, "eva_master/model/job.py")
    assert near == {"test_job.py": 1, "test_fake.py": 2, "test_fit.py": 2}
    assert next(iter(near)) == "test_job.py"
    assert chosen(repository, "eva_master/packing/fit.py") == {"test_fit.py": 1, "test_loop.py": 2}


def test_a_changed_test_runs_and_so_do_those_that_name_a_changed_page(repository: Path) -> None:
    assert chosen(repository, "tests/unit/room/test_loop.py") == {"test_loop.py": 0}
    assert chosen(repository, "docs/howto/jobs.md") == {"test_page.py": 0}
    assert chosen(repository, "LICENSE") == {}


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("eva_master/packing/__init__.py", "eva_master.packing"),
        ("iterator_sdk/eva_iterator/iterator.py", "eva_iterator.iterator"),
        ("tests/fakes/jobs.py", "tests.fakes.jobs"),
        ("tests/unit/room/test_job.py", None),
        ("docs/design/packing.md", None),
        ("examples/demo/run.py", None),
    ],
)
def test_modules_of_files(name: str, module: str | None) -> None:
    assert quick.module_of(name) == module


def test_uncommitted_and_new_files_have_changed_and_those_of_main_have_not(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.com",
            "-c",
            "commit.gpgsign=false",
        ]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", ".")
        git("commit", "--quiet", "-m", name)

    git("init", "--quiet", "--initial-branch=main")
    commit("first")
    git("checkout", "--quiet", "-b", "branch")
    commit("second")
    git("checkout", "--quiet", "main")
    commit("later on main")
    git("checkout", "--quiet", "branch")
    (tmp_path / "first").write_text("changed")
    (tmp_path / "new").write_text("new")
    assert quick.changed(tmp_path, "main") == ["first", "new", "second"]
    assert quick.changed(tmp_path, "unknown") == ["first", "new"]
