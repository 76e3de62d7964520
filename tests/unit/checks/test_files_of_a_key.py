"""A plain key of job files is written down in the files of the contributors' checklist alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.checks.sources import PACKAGES, python_files

ROOT = Path(__file__).parents[3]
PRODUCTION = [name for name in PACKAGES if name != "eva_lab"]


def checklist() -> set[str]:
    """The files that the checklist of a job-file key names."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(r"\*\*A key of the job file\*\*\n(.*?)\n\*\*", text, re.DOTALL)
    assert section is not None
    return set(re.findall(r"- \[ \] `([^`]+)`", section[1]))


def names(file: Path, key: str) -> bool:
    """Whether a source declares, sets or reads a value of a name; numpy's functions are none."""
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if key in text else ():
        if isinstance(node, ast.Attribute) and node.attr == key:
            if not (isinstance(node.value, ast.Name) and node.value.id == "np"):
                return True
        elif (isinstance(node, ast.keyword) and node.arg == key) or (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == key
        ):
            return True
    return False


def test_the_checklist_names_files_that_there_are() -> None:
    assert all((ROOT / name).exists() for name in checklist())


@pytest.mark.parametrize(
    ("key", "readers"),
    [
        ("unique", {"eva_master/control/commands.py"}),
        (
            "batch_size",
            {
                "eva_master/learning/speeds/first_rates.py",
                "eva_master/adapters/resolving/groups.py",
            },
        ),
    ],
)
def test_a_key_is_carried_by_no_file_between_the_document_and_its_reader(
    key: str, readers: set[str]
) -> None:
    files = {file.relative_to(ROOT).as_posix() for file in python_files(ROOT, tuple(PRODUCTION))}
    carriers = {name for name in files if names(ROOT / name, key)}
    assert readers <= carriers <= checklist() | readers
