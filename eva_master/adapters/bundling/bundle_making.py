"""Makes a bundle: one tar with all that a machine needs to become part of a cluster.

In it are the wheels of the project and of everything that it needs, in the locked versions with the
locked digests, pip's own, and the systemd unit. A machine that has Python 3.11 needs no package
index. The content is put together alike every time, and its digest is in the bundle's name.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eva_master.adapters.bundling.found import ARCHITECTURES
from eva_master.adapters.bundling.installed_wheels import OWN, is_installed, is_whole, remake
from eva_wire.values.errors import EvaError, NotFound

PYTHON = "3.11"
"""Python version of the wheels; the user data asks for the same."""
ROOTS: Mapping[str, tuple[str, ...]] = {
    "worker": ("eva-worker",),
    "master": ("eva-scheduler", "eva-lab"),
}
"""Distributions that a machine runs; what they need comes with them."""
_PACKED = Path(__file__).parent / "packed"
_CHECKOUT = Path(__file__).parents[3]
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
_PIP = "pip"

Requirements = Callable[[str], Iterable[str]]
"""The lines of requirements of a distribution, by its name."""


def constraints() -> Path:
    """The file of locked versions and digests."""
    packed = _PACKED / "constraints.txt"
    return packed if packed.exists() else _CHECKOUT / "constraints.txt"


def unit(role: str) -> Path:
    """The systemd unit of a machine."""
    packed = _PACKED / "systemd" / f"eva-{role}.service"
    return packed if packed.exists() else _CHECKOUT / "deploy" / "systemd" / packed.name


def made_of_installed(
    into: Path,
    architectures: Sequence[str] = ("x86_64",),
    say: Callable[[str], None] = lambda _: None,
) -> Path:
    """Make the bundles of master and workers of what is installed here, unless they are there.

    Args:
        into: Directory below which they are kept.
        architectures: Architectures of workers, as EC2 names them.
        say: Called with a sentence before what takes long.

    Returns:
        The directory of the bundles.

    Raises:
        NotFound: A distribution is not installed, or is linked to a checkout.
        EvaError: A file of a distribution has changed, or pip has failed.
    """
    _require_whole("eva-scheduler")
    roots = {role: (names[0], *filter(is_installed, names[1:])) for role, names in ROOTS.items()}
    closures = {role: closure(names) for role, names in roots.items()}
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="eva-wheels-") as scratch:
        own: dict[str, Path] = {}
        for name in sorted(set[str]().union(*closures.values()) & {*OWN}):
            _require_whole(name)
            own[name] = remake(name, Path(scratch))
        parts = [constraints(), *map(unit, ROOTS), *own.values()]
        content = b"".join(part.read_bytes() for part in parts)
        digest = hashlib.sha256(content + repr(tuple(architectures)).encode()).hexdigest()
        directory = into / digest[:16]
        if not directory.exists():
            aside = Path(tempfile.mkdtemp(prefix="new-", dir=into))
            try:
                kinds = [("master", "x86_64"), *(("worker", each) for each in architectures)]
                for role, name in kinds:
                    say(f"Making the bundle of a {role} ({name}) of the packages installed here")
                    make(role, own, closures[role], arch=ARCHITECTURES[name], into=aside)
                aside.rename(directory)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    return directory


def _require_whole(name: str) -> None:
    if not is_whole(name):
        raise NotFound(
            f"{name} is linked to a checkout, so no bundle is made of it",
            hint="run make bundle in the checkout, and name its directory dist with --bundles",
        )


def make(
    role: str,
    own: Mapping[str, Path],
    names: Iterable[str],
    *,
    arch: str = "x86_64",
    into: Path,
) -> Path:
    """Make a bundle; returns its path.

    Args:
        role: ``worker`` or ``master``.
        own: Wheels of the project's distributions, by name.
        names: All distributions to have in it, the project's among them.
        arch: Of the machines that are to use it: ``x86_64`` or ``aarch64``.
        into: Directory, made if need be.

    Raises:
        EvaError: pip failed.
    """
    into.mkdir(parents=True, exist_ok=True)
    names = set(names)
    with tempfile.TemporaryDirectory(prefix="eva-bundle-") as scratch:
        wheels = Path(scratch, "wheels")
        _download(sorted(names - {*OWN}), arch, wheels)
        files = [*wheels.iterdir(), *(own[name] for name in names & {*OWN}), unit(role)]
        aside = Path(scratch, "bundle.tar")
        _pack(aside, files)
        digest = hashlib.sha256(aside.read_bytes()).hexdigest()
        release = own[ROOTS[role][0]].name.split("-")[1]
        made = into / f"eva-{role}-{release}-{arch}-{digest[:16]}.tar"
        # Not renamed: the two may be on different disks.
        made.write_bytes(aside.read_bytes())
    return made


def closure(roots: Iterable[str], needed: Requirements | None = None) -> set[str]:
    """Names of distributions and of all that they need, as the present environment has them.

    Args:
        roots: The distributions.
        needed: Requirements of each; by default those of the installed ones.

    Raises:
        NotFound: One of them is not installed.
    """
    environment = {"platform_system": "Linux", "sys_platform": "linux", "extra": ""}
    unseen = [Requirement(root) for root in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while unseen:
        wanted = unseen.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        for line in (needed or needs_of)(wanted.name):
            requirement = Requirement(line)
            extras = ["", *wanted.extras]
            if not requirement.marker or any(
                requirement.marker.evaluate({**environment, "extra": extra}) for extra in extras
            ):
                unseen.append(requirement)
    return {name for name, _ in seen}


def needs_of(name: str) -> Iterable[str]:
    """Requirements of an installed distribution; raises `NotFound`."""
    try:
        return requires(name) or ()
    except PackageNotFoundError:
        raise NotFound(f"{name} is not installed", hint=f"pip install {name}") from None


def _download(names: Iterable[str], arch: str, wheels: Path) -> None:
    """Bring the locked wheels of distributions here."""
    # An entry of the file has the distribution's line, and the digests below.
    entries = re.split(r"\n(?=\S)", constraints().read_text())
    locked: dict[str, str] = {
        canonicalize_name(re.split(r"[=\[ ]", entry)[0]): entry for entry in entries
    }
    if unlocked := sorted(set(names) - locked.keys()):
        raise NotFound(f"no version of {unlocked[0]} is locked for bundles", hint="make lock")
    requirements = wheels.with_name("requirements.txt")
    requirements.write_text("\n".join(locked[name] for name in names))
    target = [f"--platform={platform}_{arch}" for platform in _PLATFORMS]
    options = ["--no-deps", "--only-binary=:all:", f"--python-version={PYTHON}", *target]
    options += ["--dest", str(wheels)]
    _run_pip([*options, "--require-hashes", "-r", str(requirements)])
    # This pip only unpacks verified files, so its version is of no consequence.
    _run_pip([*options, _PIP])


def _run_pip(options: list[str]) -> None:
    if find_spec("pip") is None:
        raise NotFound(f"{sys.executable} has no pip", hint="python -m ensurepip")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    outcome = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if outcome.returncode:
        lines = [line for line in outcome.stderr.splitlines() if line.strip()]
        raise EvaError(
            f"pip cannot bring the wheels of a bundle: {lines[-1] if lines else 'it failed'}",
            hint="give pip a package index (PIP_INDEX_URL), or name a directory of bundles with "
            "--bundles",
        )


def _pack(target: Path, files: Iterable[Path]) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for file in sorted(files, key=lambda file: file.name):
            entry = tarfile.TarInfo(file.name)
            entry.size, entry.mode = file.stat().st_size, 0o644
            with file.open("rb") as content:
                tar.addfile(entry, content)
