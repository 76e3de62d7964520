"""Makes a bundle: one tar with all that a machine needs to become part of a cluster.

``python -m deploy.bundle worker|master [--arch x86_64|aarch64] [--into dist]`` prints the path of
``eva-worker-VERSION-ARCH-DIGEST.tar``. In it are the wheels of the project and of everything that
it needs, in the locked versions with the locked digests, pip's own, and the systemd unit. A machine
that has Python 3.11 needs no package index.

The digest is that of the content, which is put together alike every time.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.wheels import DISTRIBUTIONS, REPOSITORY, build, folder, packages, project

PYTHON = "3.11"
"""Python version of the wheels; the user data asks for the same."""

_ROOTS = {"worker": ("eva-worker",), "master": ("eva-scheduler", "eva-lab")}
"""Distributions that a machine runs; what they need comes with them."""
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
_PIP = "pip"


def make(role: str, *, arch: str = "x86_64", into: Path = REPOSITORY / "dist") -> Path:
    """Make a bundle; returns its path.

    Args:
        role: ``worker`` or ``master``.
        arch: Of the machines that are to use it: ``x86_64`` or ``aarch64``.
        into: Directory, made if need be.

    Raises:
        subprocess.CalledProcessError: pip failed; it has said why.
    """
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eva-bundle-") as scratch:
        wheels = Path(scratch, "wheels")
        names = _closure(_ROOTS[role])
        _download(sorted(names - {*DISTRIBUTIONS}), arch, wheels)
        build(sorted(names & {*DISTRIBUTIONS}), wheels)
        aside = Path(scratch, "bundle.tar")
        _pack(aside, [*wheels.iterdir(), REPOSITORY / f"deploy/systemd/eva-{role}.service"])
        digest = hashlib.sha256(aside.read_bytes()).hexdigest()
        version = project(_ROOTS[role][0])["version"]
        made = into / f"eva-{role}-{version}-{arch}-{digest[:16]}.tar"
        # Not renamed: the two may be on different disks.
        made.write_bytes(aside.read_bytes())
    return made


def source_digest() -> str:
    """Tells whether a bundle would be another one: of what it is made from."""
    told = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(_sources()):
        told.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return told.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    yield REPOSITORY / "constraints.txt"
    folders = [REPOSITORY / "deploy"]
    for name in DISTRIBUTIONS:
        yield folder(name) / "pyproject.toml"
        folders += packages(name)
    for path in (path for top in folders for path in top.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield path


def _closure(roots: Iterable[str]) -> set[str]:
    """Names of distributions and of all that they need, as the present environment has them."""
    environment = {"platform_system": "Linux", "sys_platform": "linux", "extra": ""}
    unseen = [Requirement(root) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while unseen:
        wanted = unseen.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        for line in _needed(wanted.name):
            requirement = Requirement(line)
            extras = ["", *wanted.extras]
            if not requirement.marker or any(
                requirement.marker.evaluate({**environment, "extra": extra}) for extra in extras
            ):
                unseen.append(requirement)
    return {name for name, _ in seen}


def _needed(name: str) -> Iterator[str]:
    """Requirements of a distribution: the project's own as its file says, others as installed."""
    if name in DISTRIBUTIONS:
        table = project(name)
        yield from table["dependencies"]
        for extra, lines in table.get("optional-dependencies", {}).items():
            yield from (f"{line}; extra == '{extra}'" for line in lines)
        return
    try:
        yield from requires(name) or ()
    except PackageNotFoundError:
        raise SystemExit(f"{name} is not installed: run make setup") from None


def _download(names: Iterable[str], arch: str, wheels: Path) -> None:
    """Bring the locked wheels of distributions here."""
    wanted = {*names, _PIP}
    # One entry per distribution: its first line, and the digests below.
    entries = re.split(r"\n(?=\S)", (REPOSITORY / "constraints.txt").read_text())
    locked = {canonicalize_name(re.split(r"[=\[ ]", entry)[0]): entry for entry in entries}
    lines = [locked[name] for name in sorted(wanted - {_PIP})]
    requirements = wheels.with_name("requirements.txt")
    requirements.write_text("\n".join(lines))
    target = [f"--platform={platform}_{arch}" for platform in _PLATFORMS]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    common = [*pip, "--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", *target]
    common += ["--dest", str(wheels)]
    subprocess.run([*common, "--require-hashes", "-r", str(requirements)], check=True)
    # This pip only unpacks verified files, so its version is of no consequence.
    subprocess.run([*common, _PIP], check=True)


def _pack(target: Path, files: Iterable[Path]) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(files, key=lambda file: file.name):
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode = file.stat().st_size, 0o644
            with file.open("rb") as content:
                tar.addfile(entry, content)


def main() -> None:
    """Build the bundle that the command line names."""
    parser = argparse.ArgumentParser(prog="bundle", description="Makes a bundle.")
    parser.add_argument("role", choices=["worker", "master"])
    parser.add_argument("--arch", choices=["x86_64", "aarch64"], default="x86_64")
    parser.add_argument("--into", type=Path, default=REPOSITORY / "dist")
    options = parser.parse_args()
    sys.stdout.write(f"{make(options.role, arch=options.arch, into=options.into)}\n")


if __name__ == "__main__":
    main()
