"""Finds bundles that have been made, and states them so that a machine can check them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eva_wire.values.errors import NotFound

ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64"}
"""Architectures as EC2 names them, and as bundles do."""
_HINT = "run make bundle in a checkout, and name its directory dist with --bundles"


@dataclass(frozen=True, slots=True)
class Bundles:
    """The bundles that a cluster installs.

    Attributes:
        master: Bundle of the master.
        workers: Bundle of the workers by architecture, as EC2 names it.
    """

    master: Path
    workers: Mapping[str, Path]

    def files(self) -> Iterator[tuple[str, Path]]:
        """Each bundle as it is stated, and its file."""
        for file in (self.master, *self.workers.values()):
            yield stated(file), file


def find_bundles(directory: Path) -> Bundles:
    """The newest bundles in a directory.

    Raises:
        NotFound: There is none for the master, or none for workers.
    """
    master = _newest(directory, "master", "x86_64")
    workers = {
        architecture: file
        for architecture, called in ARCHITECTURES.items()
        if (file := _newest(directory, "worker", called)) is not None
    }
    if master is None or not workers:
        missing = "worker" if master else "master"
        raise NotFound(f"{directory} has no bundle for the {missing}", hint=_HINT)
    return Bundles(master, workers)


def stated(file: Path) -> str:
    """Key of a bundle in an object store, and its digest: ``KEY#sha256=DIGEST``."""
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return f"bundles/{file.name}#sha256={digest}"


def _newest(directory: Path, role: str, architecture: str) -> Path | None:
    bundles = directory.glob(f"eva-{role}-*-{architecture}-*.tar")
    return max(bundles, key=lambda file: file.stat().st_mtime, default=None)
