"""The files that the checks read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("eva_client", "eva_lab", "eva_master", "eva_policies", "eva_wire", "eva_worker")
"""Packages of the product, beside that of programs."""
PRODUCT = (*PACKAGES, "iterator_sdk")
"""Folders of the product, in which generated code is left out."""

_SKIPPED = {"_proto", "__pycache__", "build", "dist", "node_modules"}
"""Folders of generated files."""
_OUTPUT = "results"
"""Folder of the output of runs, beside the packages."""


def python_files(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    """Every hand-written Python file in some folders of a repository, in order."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).parts
            if not any(part in _SKIPPED or part.startswith(".") for part in parts):
                yield path


def markdown_files(root: Path) -> Iterator[Path]:
    """Every page of a repository, in order; links to files and folders are not followed."""
    for entry in sorted(root.iterdir()):
        skipped = entry.name.startswith(".") or entry.name in (*_SKIPPED, _OUTPUT)
        if entry.is_symlink() or skipped:
            continue
        if entry.is_dir():
            yield from markdown_files(entry)
        elif entry.suffix == ".md":
            yield entry
