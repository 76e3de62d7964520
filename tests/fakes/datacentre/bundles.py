"""Bundles for machines whose packages are this environment's: the units alone."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.fakes.datacentre.machine import SYSTEMD


def make(directory: Path) -> None:
    """Make a bundle of the master and one of the worker, as `make bundle` names them."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pip-1.whl").touch()
    for kind in ("master", "worker"):
        with tarfile.open(directory / f"eva-{kind}-0.1.0-x86_64-1.tar", "w") as tar:
            tar.add(directory / "pip-1.whl", "pip-1.whl")
            tar.add(SYSTEMD / f"eva-{kind}.service", f"eva-{kind}.service")
