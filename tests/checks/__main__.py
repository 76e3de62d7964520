"""Runs every check on the repository; the exit code is 1 if any of them reports a fault."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.checks import cycles, docstrings, links, sizes

ROOT = Path(__file__).parents[2]
PACKAGES = ("eva_master", "eva_worker", "eva_iterator")


def main() -> int:
    """Run the checks and print one line per fault."""
    faults = [
        *docstrings.faults(ROOT),
        *links.faults(ROOT),
        *sizes.faults(ROOT),
        *cycles.faults(PACKAGES),
    ]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "No faults.", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
