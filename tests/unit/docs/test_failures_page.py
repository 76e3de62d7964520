"""The page on failures: each row names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "failures.md").read_text()
_NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
_ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and " --- " not in line]
_HEADS = [line for line in _ROWS if "shown by" in line]


@cache
def _tests(file: str) -> frozenset[str]:
    """The functions of all test files of a name."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob(file):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
    return frozenset(found)


@pytest.mark.parametrize("row", [it for it in _ROWS if it not in _HEADS])
def test_each_row_names_tests_that_exist(row: str) -> None:
    named = _NAMED.findall(row.rpartition("|")[0].rpartition("|")[2])
    assert named, "the last cell names no test"
    for file, test in named:
        assert test in _tests(file), f"{file} has no {test}"


def test_the_page_has_two_tables_of_what_is_shown() -> None:
    assert len(_HEADS) == 2
    assert len(_ROWS) > 20
