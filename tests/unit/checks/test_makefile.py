"""What `make` shows to whoever runs it for the first time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_setup_shows_progress() -> None:
    """It says what it begins and lets pip tell of each package, for it takes minutes."""
    # A target of make has no blanks in its name, as the directory of a test may.
    command = ["make", "-n", "setup", "VENV=.venv-that-is-not-there"]
    # These tests may be run by a make, which tells the makes below it of itself.
    environment = {name: it for name, it in os.environ.items() if not name.startswith("MAKE")}
    shown = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    first, *others = shown.splitlines()
    assert "some minutes" in first
    (install,) = [line for line in others if "--require-hashes -r constraints.txt" in line]
    assert "--quiet" not in install
