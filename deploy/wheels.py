"""Builds the wheels of the project's six distributions.

``python -m deploy.wheels [NAME...] [--into dist]`` prints the path of each. Five distributions have
their lines in ``packaging/NAME/pyproject.toml`` and their packages at the top of the repository;
``eva-iterator`` has both in ``iterator_sdk``. The ``pyproject.toml`` at the top is for development:
one installation with all of them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deploy import kernel

REPOSITORY = Path(__file__).parents[1]
ITERATOR = "eva-iterator"
DISTRIBUTIONS = (
    *sorted(path.parent.name for path in (REPOSITORY / "packaging").glob("*/pyproject.toml")),
    ITERATOR,
)

_COMPILED = shutil.ignore_patterns("__pycache__", "*.pyc")


def folder(name: str) -> Path:
    """The folder of a distribution's ``pyproject.toml``."""
    return REPOSITORY / ("iterator_sdk" if name == ITERATOR else f"packaging/{name}")


def project(name: str) -> dict[str, Any]:
    """The table ``project`` of a distribution."""
    table: dict[str, Any] = _document(name)["project"]
    return table


def packages(name: str) -> list[Path]:
    """Folders of a distribution's packages."""
    home = folder(name) if name == ITERATOR else REPOSITORY
    return [
        home / package
        for package in _document(name)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ]


def included(name: str) -> list[str]:
    """Files and folders of this repository that a distribution has within its packages."""
    wheel = _document(name)["tool"]["hatch"]["build"]["targets"]["wheel"]
    return sorted(wheel.get("force-include", {}))


def build(names: Iterable[str], into: Path) -> list[Path]:
    """Build wheels with the build tools of this environment.

    Args:
        names: Distributions.
        into: Folder of the wheels, made if need be.

    Raises:
        subprocess.CalledProcessError: pip failed; it has said why.
    """
    into.mkdir(parents=True, exist_ok=True)
    wheels = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="eva-wheel-") as scratch:
            for package in packages(name):
                shutil.copytree(package, Path(scratch, package.name), ignore=_COMPILED)
            if (REPOSITORY / kernel.HOME).parents[1] in packages(name):
                kernel.compile_kernel(kernel.TARGETS, Path(scratch, kernel.HOME))
            for source in map(Path, included(name)):
                copy = Path(scratch, source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if (REPOSITORY / source).is_file():
                    shutil.copy(REPOSITORY / source, copy)
                else:
                    shutil.copytree(REPOSITORY / source, copy, ignore=_COMPILED)
            for file in (folder(name) / "pyproject.toml", REPOSITORY / "LICENSE"):
                shutil.copy(file, scratch)
            readme = project(name).get("readme")
            if readme:
                shutil.copy(folder(name) / readme, scratch)
            command = [sys.executable, "-m", "pip", "wheel", "--quiet"]
            command += ["--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
            before = {*into.iterdir()}
            subprocess.run([*command, "--wheel-dir", str(into), scratch], check=True)
            fresh = {*into.iterdir()} - before or set(into.glob(f"{name.replace('-', '_')}-*.whl"))
            wheels += sorted(fresh)
    return wheels


def _document(name: str) -> dict[str, Any]:
    return tomllib.loads((folder(name) / "pyproject.toml").read_text())


def main() -> None:
    """Build the wheels that the command line names; all by default."""
    parser = argparse.ArgumentParser(prog="wheels", description="Builds wheels.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DISTRIBUTIONS))
    parser.add_argument("--into", type=Path, default=REPOSITORY / "dist")
    options = parser.parse_args()
    if unknown := sorted({*options.names} - {*DISTRIBUTIONS}):
        parser.error(f"{unknown[0]} is none of {', '.join(DISTRIBUTIONS)}")
    for wheel in build(options.names or DISTRIBUTIONS, options.into):
        sys.stdout.write(f"{wheel}\n")


if __name__ == "__main__":
    main()
