"""Finds the bundles that go to a cluster's bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from eva_wire.values.errors import NotFound

ARCHITECTURES = {"x86_64": "x86_64", "arm64": "aarch64"}
"""Architectures as EC2 names them, and as bundles do."""
_HINT = "run make bundle in a checkout, and name its directory dist with --bundles"
BUCKET = "BUCKET"
"""Placeholder for the bucket, which has no name before the stack exists."""


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
        """Each bundle as it is stated (``KEY#sha256=DIGEST``), and its file."""
        for file in (self.master, *self.workers.values()):
            yield _stated(file), file

    def parameters(self, had: str = "") -> dict[str, str]:
        """The parameters of the template for these bundles.

        Args:
            had: The cluster's present ``WorkerBundles``; those of other architectures stay.
        """
        workers = yaml.safe_load(had) or {}
        workers |= {
            architecture: f"s3://{BUCKET}/{_stated(file)}"
            for architecture, file in self.workers.items()
        }
        workers = dict(sorted(workers.items()))
        return {
            "MasterBundle": _stated(self.master),
            "WorkerBundles": yaml.safe_dump(workers, default_flow_style=True, width=10_000).strip(),
        }


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


def stated_in(parameters: Mapping[str, str]) -> dict[str, str]:
    """The bundles of a stack as they are stated, by architecture; the master's has none."""
    workers = yaml.safe_load(parameters.get("WorkerBundles", "")) or {}
    bundles = {kind: place.removeprefix(f"s3://{BUCKET}/") for kind, place in workers.items()}
    return {"": parameters["MasterBundle"], **bundles}


def unmade() -> dict[str, str]:
    """The parameters of the template for bundles that are still to be made."""
    digest = "sha256=" + "0" * 64
    worker = f"{{x86_64: 's3://{BUCKET}/bundles/to-be-made.tar#{digest}'}}"
    return {"MasterBundle": f"bundles/to-be-made.tar#{digest}", "WorkerBundles": worker}


def _newest(directory: Path, role: str, architecture: str) -> Path | None:
    bundles = directory.glob(f"eva-{role}-*-{architecture}-*.tar")
    return max(bundles, key=lambda file: file.stat().st_mtime, default=None)


def _stated(file: Path) -> str:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return f"bundles/{file.name}#sha256={digest}"
