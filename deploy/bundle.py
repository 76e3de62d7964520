"""Makes a bundle of a checkout: one tar with all that a machine needs to be part of a cluster.

``python -m deploy.bundle worker|master [--arch x86_64|aarch64] [--into dist]`` prints the path of
``eva-worker-VERSION-ARCH-DIGEST.tar``. See `eva_master.adapters.bundling.bundle_making`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.wheels import DISTRIBUTIONS, REPOSITORY, build, folder, included, packages, project
from eva_master.adapters.bundling import bundle_making
from eva_wire.values.errors import EvaError


def make(role: str, *, arch: str = "x86_64", into: Path = REPOSITORY / "dist") -> Path:
    """Make a bundle; returns its path.

    Args:
        role: ``worker`` or ``master``.
        arch: Of the machines that are to use it: ``x86_64`` or ``aarch64``.
        into: Directory, made if need be.

    Raises:
        subprocess.CalledProcessError: pip failed to build a wheel; it has said why.
        EvaError: pip could not bring a wheel.
    """
    names = bundle_making.closure(bundle_making.ROOTS[role], _needed)
    with tempfile.TemporaryDirectory(prefix="eva-own-wheels-") as scratch:
        own = {name: build([name], Path(scratch))[0] for name in DISTRIBUTIONS if name in names}
        return bundle_making.make(role, own, names, arch=arch, into=into)


def source_digest() -> str:
    """Tells whether a bundle would be another one: of what it is made from."""
    digest = hashlib.sha256()
    for path in sorted(_sources()):
        digest.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    tops = [REPOSITORY / "deploy"]
    for name in DISTRIBUTIONS:
        yield folder(name) / "pyproject.toml"
        tops += packages(name)
        tops += [REPOSITORY / source for source in included(name)]
    for top in tops:
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path


def _needed(name: str) -> Iterable[str]:
    """Requirements of a distribution: the project's own as its file says, others as installed."""
    if name not in DISTRIBUTIONS:
        return bundle_making.needs_of(name)
    table = project(name)
    extras = table.get("optional-dependencies", {}).items()
    return [
        *table["dependencies"],
        *(f"{line}; extra == '{extra}'" for extra, lines in extras for line in lines),
    ]


def main() -> None:
    """Build the bundle that the command line names."""
    parser = argparse.ArgumentParser(prog="bundle", description="Makes a bundle.")
    parser.add_argument("role", choices=["worker", "master"])
    parser.add_argument("--arch", choices=["x86_64", "aarch64"], default="x86_64")
    parser.add_argument("--into", type=Path, default=REPOSITORY / "dist")
    options = parser.parse_args()
    try:
        sys.stdout.write(f"{make(options.role, arch=options.arch, into=options.into)}\n")
    except EvaError as error:
        sys.exit(f"error: {error.message}\nhint: {error.hint}")


if __name__ == "__main__":
    main()
