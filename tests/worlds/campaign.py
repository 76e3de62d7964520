"""Runs thousands of worlds that no test has seen, under eva; goes on where it was stopped.

`python -m tests.worlds.campaign --count 10000` writes findings to build/worlds.txt, whose first
line says how many worlds are done and with which code. With other code it begins anew. The exit
code is 1 if an oracle found anything but a cost of one world in a thousand. Findings become fixed
worlds.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter
from pathlib import Path

from tests.worlds.drawing import FLAVOURS, draw
from tests.worlds.oracles import findings, findings_beside
from tests.worlds.oracles.costs import apart
from tests.worlds.oracles.waiting import Waits
from tests.worlds.running import run

_FIRST_SEED = 1_000
"""Fixed worlds have smaller ones."""
_ONE_IN = 1_000
"""One world in so many may cost too much."""
_COSTS = frozenset({"cost", "dearer"})
_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the worlds whose numbers are from the last one done up to the count."""
    parser = argparse.ArgumentParser(prog="python -m tests.worlds.campaign", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="worlds in all")
    parser.add_argument("--file", type=Path, default=Path("build/worlds.txt"))
    options = parser.parse_args(arguments)
    options.file.parent.mkdir(parents=True, exist_ok=True)
    code, (done, ratio, told) = _digest(), _read(options.file)
    for number in range(done, options.count):
        seen, part = check(number)
        ratio += part
        told += seen
        for line in seen:
            print(line, flush=True)
        _write(options.file, f"{number + 1} {code} {ratio:.4f}", told)
    costly = {line.partition(" --policy")[0] for line in told if _oracle(line) in _COSTS}
    others = [line for line in told if _oracle(line) not in _COSTS]
    print(f"{options.count} worlds, mean cost {ratio / options.count:.3f} of each task alone")
    print(dict(Counter(_oracle(line) for line in told)))
    return int(bool(others) or len(costly) * _ONE_IN > max(options.count, _ONE_IN))


def check(number: int) -> tuple[list[str], float]:
    """Run a world by its number: what oracles say, and its cost beside each task alone."""
    flavours = list(FLAVOURS)
    world = draw(_FIRST_SEED + number // len(flavours), flavours[number % len(flavours)])
    story = run(world)
    bound = apart(story, Waits(story))
    seen = [*findings(story), *findings_beside(story, run)]
    return [str(it) for it in seen], story.cost() / bound if bound else 1.0


def _oracle(line: str) -> str:
    return line.partition(": ")[2].partition(" at ")[0]


def _read(file: Path) -> tuple[int, float, list[str]]:
    """How many worlds are done with this code, the sum of their costs, and what was found."""
    lines = file.read_text().splitlines() if file.exists() else []
    if not lines or lines[0].split()[1] != _digest():
        return 0, 0.0, []
    done, _, ratio = lines[0].split()
    return int(done), float(ratio), lines[1:]


def _write(file: Path, first: str, told: list[str]) -> None:
    """Write the file; it is never half written."""
    half = file.with_suffix(".new")
    half.write_text("\n".join([first, *told]) + "\n")
    half.replace(file)


def _digest() -> str:
    known = hashlib.sha256()
    for folder in ("eva_lab", "eva_master", "eva_policies", "eva_wire/values", "tests/worlds"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            known.update(path.read_bytes())
    return known.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
