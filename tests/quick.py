"""Runs the unit tests that a change most likely breaks, within two minutes on two quiet cores.

Run as `python -m tests.quick [--all] [--list] [--base REF]` (`make quick`). Changed are the files
that differ from the merge base with `main` (`--base` names another branch or commit), uncommitted
and new files included. A unit test file is as near to a change as its imports are short: 0 if it
changed itself or names the changed file, 1 if it imports the changed module, 2 if it imports a
module that does, and so on. The nearest files run, at most `MOST`; the others are for `make test`.
`--all` runs all unit tests, about three minutes.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
UNIT = "tests/unit"
PACKAGES = (
    "eva_client",
    "eva_lab",
    "eva_master",
    "eva_policies",
    "eva_wire",
    "eva_worker",
    "eva_iterator",
    "benchmarks",
    "tests",
)
MOST = 150
"""Test files that are run at most, unless all are."""
FARTHEST = 2
"""Imports between a test and a changed module at most."""
_FOR_ALL = ("tests/conftest.py", "constraints.txt", "pyproject.toml")
"""Files that every test depends on."""
_NOTHING_COLLECTED = 5


def changed(root: Path, base: str) -> list[str]:
    """The files that differ from the merge base with a branch or commit, in order.

    Args:
        root: A git repository.
        base: The branch or commit; where there is none, only uncommitted changes count.
    """
    fork = _git(root, "merge-base", base, "HEAD") or ["HEAD"]
    names = _git(root, "diff", "--name-only", "--no-renames", fork[0])
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    return sorted({*names, *new})


def nearest(
    root: Path, names: Sequence[str], importers: Mapping[str, Iterable[str]]
) -> dict[str, int]:
    """Unit test files that a change may break, the nearest first, and how near each is.

    Args:
        root: The repository.
        names: The changed files.
        importers: By module: the modules that import it, tests apart.
    """
    tests = {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((root / UNIT).rglob("test_*.py"))
    }
    distances = _distances(filter(None, map(module_of, names)), importers)
    titles = [Path(name).name for name in names if module_of(name) is None]
    near: dict[str, int] = {}
    for test, text in tests.items():
        reached = [1 + distances[module] for module in imported(text) if module in distances]
        if test in names or any(title in text for title in titles):
            reached.append(0)
        if reached and min(reached) <= FARTHEST:
            near[test] = min(reached)
    return dict(sorted(near.items(), key=lambda item: (item[1], item[0])))


def module_of(name: str) -> str | None:
    """The module that a file holds, `None` if it holds none that tests import."""
    path = Path(name)
    parts = path.with_suffix("").parts
    if parts[:1] == ("iterator_sdk",):
        parts = parts[1:]
    if path.suffix != ".py" or not parts or parts[0] not in PACKAGES or name.startswith(UNIT):
        return None
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(text: str) -> Iterator[str]:
    """The modules that a file may import; names of what it imports from them included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _distances(modules: Iterable[str], importers: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """By module: the imports from it to the nearest of some modules."""
    distances = dict.fromkeys(modules, 0)
    ahead = list(distances)
    for module in ahead:  # grows while it is gone through: breadth first
        for importer in importers.get(module, ()) if distances[module] < FARTHEST else ():
            if importer not in distances:
                distances[importer] = distances[module] + 1
                ahead.append(importer)
    return distances


def _importers() -> Mapping[str, list[str]]:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {
        module: sorted(graph.find_modules_that_directly_import(module))
        for module in sorted(graph.modules)
    }


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def chosen(root: Path, base: str) -> list[str]:
    """The unit test files to run for what has changed; prints how they were chosen."""
    names = changed(root, base)
    if not names:
        print(f"Nothing differs from {base}; `make quick ALL=1` runs all unit tests.")
        return []
    if any(name in _FOR_ALL for name in names):
        print("Something has changed that every test depends on: all unit tests.")
        return [UNIT]
    near = nearest(root, names, _importers())
    files = list(near)[:MOST]
    print(f"{len(names)} changed files, {len(near)} unit test files near them", end="")
    print(f"; the nearest {MOST} run, the others by `make test`" if len(near) > MOST else "")
    return files


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests; returns pytest's exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.quick",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--all", action="store_true", help="run all unit tests")
    parser.add_argument("--list", action="store_true", help="print the files, run nothing")
    parser.add_argument("--base", default="main", metavar="REF", help="default: main")
    asked = parser.parse_args(arguments)
    files = [UNIT] if asked.all else chosen(ROOT, asked.base)
    if asked.list or not files:
        print("\n".join(files))
        return 0
    sys.stdout.flush()
    marks = ["-m", "not root and not long and not waits"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *marks]
    code = subprocess.run([*command, *files], cwd=ROOT, check=False).returncode
    return 0 if code == _NOTHING_COLLECTED else code


if __name__ == "__main__":
    sys.exit(main())
