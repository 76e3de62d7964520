"""Distributions with policies of their own, as a package installer leaves them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.patience import DEADLINE_S

TEMPLATE = Path(__file__).parents[2] / "examples" / "policy_template"


def distribution(folder: Path, name: str, policies: dict[str, str], **modules: str) -> None:
    """Leave a distribution on an import path.

    Args:
        folder: A directory of the import path.
        name: Of the distribution.
        policies: Its entry points: policy to ``module:attribute``.
        modules: Source of its modules, by name.
    """
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [f"{policy} = {target}" for policy, target in policies.items()]
    (info / "entry_points.txt").write_text("\n".join(["[eva.policies]", *lines, ""]))


def install(target: Path, source: Path = TEMPLATE) -> None:
    """Build a project and install it into a directory; needs no network."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    subprocess.run([*command, *alone, str(source)], check=True, timeout=DEADLINE_S)


def path_with(folder: Path) -> str:
    """PYTHONPATH with one more directory."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
