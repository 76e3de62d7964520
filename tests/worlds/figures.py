"""Figures of worlds: launches, cost beside no_packing, and completion, for comparing two versions.

Run as `python -m tests.worlds.figures FILE [--count N] [--flavour NAME]...`: appends a line of JSON
for each world that FILE does not have yet. `--compare OTHER` tells both files' sums over the worlds
that both have.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.worlds.drawing import FLAVOURS, draw
from tests.worlds.oracles import findings
from tests.worlds.oracles.costs import apart
from tests.worlds.oracles.waiting import Waits
from tests.worlds.running import run

Line = Mapping[str, Any]


def figures(seed: int, flavour: str) -> Line:
    """Figures of a world under eva, beside no_packing."""
    world = draw(seed, flavour)
    eva, alone = run(world, "eva"), run(world, "no_packing")
    return {
        "world": world.title,
        "launches": sum(1 for _ in eva.bought()),
        "alone_launches": sum(1 for _ in alone.bought()),
        "cost": eva.cost(),
        "alone_cost": alone.cost(),
        "apart": apart(eva, Waits(eva)),
        "completion_s": eva.completion_s(),
        "ended": eva.quiet,
        "alone_ended": alone.quiet,
        "findings": sorted(it.oracle for it in findings(eva)),
    }


def sums(lines: Iterable[Line]) -> Mapping[str, float]:
    """Sums and means over worlds that ended under both policies."""
    ended = [it for it in lines if it["ended"] and it["alone_ended"]]
    costly = [it for it in ended if it["alone_cost"] > 0]
    found = [name for it in ended for name in set(it["findings"])]
    return {
        "worlds": len(ended),
        "launches": sum(it["launches"] for it in ended),
        "cost": round(sum(it["cost"] for it in ended), 4),
        "mean cost / no_packing": _mean(it["cost"] / it["alone_cost"] for it in costly),
        "mean cost / each task alone": _mean(it["cost"] / it["apart"] for it in costly),
        "mean completion, s": _mean(it["completion_s"] for it in ended),
        **{f"worlds with {name}": found.count(name) for name in sorted(set(found))},
    }


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return round(sum(known) / max(1, len(known)), 4)


def _read(path: Path) -> dict[str, Line]:
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["world"]: line for line in map(json.loads, lines)}


def main(arguments: list[str] | None = None) -> int:
    """Append what is missing, or compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=12, help="seeds of each flavour")
    parser.add_argument("--flavour", action="append", choices=[*FLAVOURS])
    parser.add_argument("--compare", type=Path, help="another file")
    chosen = parser.parse_args(arguments)
    there = _read(chosen.file)
    if chosen.compare:
        other = _read(chosen.compare)
        for name, known in ((chosen.file, there), (chosen.compare, other)):
            print(
                name,
                json.dumps(sums(it for key, it in known.items() if key in there and key in other)),
            )
        return 0
    for seed in range(chosen.count):
        for flavour in chosen.flavour or FLAVOURS:
            if draw(seed, flavour).title not in there:
                line = json.dumps(figures(seed, flavour))
                with chosen.file.open("a") as out:
                    out.write(line + "\n")
    print(json.dumps(sums(_read(chosen.file).values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
