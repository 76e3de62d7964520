"""The Python files that the checks read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_SKIPPED = {"_proto", "__pycache__", "build", "dist", "results"}
"""Generated folders."""


def python_files(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    """Every hand-written Python file in some folders of a repository, in order."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root).parts
            if not any(part in _SKIPPED or part.startswith(".") for part in parts):
                yield path
