"""What plans is loaded by who plans: a master that checks its settings starts sooner without."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from eva_master.app.policy_registry import policies
kind = policies()["eva"]
config = kind.config(horizon_s=60)
heavy = {"scipy", "highspy", "eva_master.packing"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
kind.build(config)
assert heavy < sys.modules.keys()
"""


def test_options_are_known_without_what_plans() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
