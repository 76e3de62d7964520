"""Refuses folders, files and functions that have grown too large to be read at once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.checks.sources import python_files

FOLDERS = (
    "eva_client",
    "eva_lab",
    "eva_master",
    "eva_policies",
    "eva_wire",
    "eva_worker",
    "iterator_sdk",
    "benchmarks",
    "examples",
    "deploy",
    "tests",
)
LISTS = (
    "eva_lab/cli",
    "eva_client/cli",
    "eva_master/adapters/store/migrations/versions",
    "benchmarks",
)
"""Folders of commands or migrations, one a file: these may hold any number."""

FILES_PER_FOLDER = 15
LINES_PER_FILE = 600
LINES_PER_FUNCTION = 60
"""Not counting its docstring."""


def faults(root: Path) -> Iterator[str]:
    """One line per folder, file or function of a repository that is too large."""
    files = list(python_files(root, FOLDERS))
    for folder, count in Counter(path.parent.relative_to(root) for path in files).items():
        if count > FILES_PER_FOLDER and folder.as_posix() not in LISTS:
            yield f"{folder}: {count} Python files side by side, at most {FILES_PER_FOLDER}"
    for path in files:
        text = path.read_text(encoding="utf-8")
        shown = path.relative_to(root)
        if (lines := text.count("\n")) > LINES_PER_FILE:
            yield f"{shown}: {lines} lines, at most {LINES_PER_FILE}"
        for name, line, length in functions(text):
            if length > LINES_PER_FUNCTION:
                yield f"{shown}:{line}: {name} has {length} lines, at most {LINES_PER_FUNCTION}"


def functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The functions of a file: name, first line, and lines without the docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = _lines(node)
            if ast.get_docstring(node, clean=False) is not None:
                length -= _lines(node.body[0])
            yield node.name, node.lineno, length


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
