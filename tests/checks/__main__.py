"""Checks of the repository that no other linter does.

Without an option every check runs; the exit code is 1 if any of them reports a fault.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.checks import ceilings, cycles, docstrings, figures, links, owners, sizes, sources

ROOT = Path(__file__).parents[2]
PACKAGES = (*sources.PACKAGES, "eva_iterator")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks and print one line per fault, or do what an option says."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks", description=__doc__)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--write", action="store_true", help=f"lower the counts of {ceilings.FILE}")
    group.add_argument("--words", nargs="+", metavar="FILE", help="show the bad words in files")
    group.add_argument("--figures", action="store_true", help="print the figures of the house")
    group.add_argument("--alike", action="store_true", help="list the places with equal lines")
    group.add_argument(
        "--mentions", choices=figures.FEATURES, help="list the files that mention a feature"
    )
    chosen = parser.parse_args(arguments)
    if chosen.write:
        ceilings.lower(ROOT)
        return 0
    if chosen.figures:
        print(figures.table(ROOT))
        return 0
    if chosen.alike:
        print(figures.alike_table(ROOT))
        return 0
    if chosen.mentions:
        print(figures.mentions_table(ROOT, chosen.mentions))
        return 0
    if chosen.words:
        for line in ceilings.places(ROOT, chosen.words):
            print(line)
        return 0
    faults = [
        *docstrings.faults(ROOT),
        *links.faults(ROOT),
        *sizes.faults(ROOT),
        *ceilings.faults(ROOT),
        *owners.faults(ROOT),
        *figures.alike_faults(ROOT),
        *cycles.faults(PACKAGES),
    ]
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else "No faults.", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
