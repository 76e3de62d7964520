"""Gains and losses of a tenant that lies about what its jobs are worth and how long they take.

Run as `python -m benchmarks.misreports WORLD.json [...] [--count N] [--guarantee on|off|both]
[--pricing NAME] [--json]`. In each of N trials per world one tenant says of all its jobs that they
are worth a fifth to twenty times as much, and that they take a quarter to four times as long. The
change is that of its true value less payments, with income, against an honest run, as a part of
that. Trials are kept in build/misreports.jsonl as they are made, so that a run that was stopped
goes on; a trial takes 15 to 50 s.

`gain` counts trials that gain more than a thousandth; `largest` and `mean` are changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.harness import Rows
from eva_lab.experiments.tenant_worlds import money_of, world_setup
from eva_lab.simulator.run import Simulation
from eva_lab.traces.fleets.recipes import WorldRecipe
from eva_master.model.accounting.worth import Worth
from eva_master.model.trace import Trace
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import MILLION

RESULTS = Path("build/misreports.jsonl")
_ROUND_S = 3600
_VALUES = (0.2, 20.0)
_WORK = (0.25, 4.0)
_NOTEWORTHY = 0.001


def lied(trace: Trace, number: int) -> tuple[Trace, dict[str, Any]]:
    """A trace in which one tenant lies, and how.

    Args:
        trace: The truth.
        number: Of the trial: the same number is the same lie.
    """
    draw = random.Random(f"misreport {number}")
    tenant = draw.choice(sorted({job.tenant for job in trace.jobs}))
    value, work = (math.exp(draw.uniform(*map(math.log, it))) for it in (_VALUES, _WORK))
    jobs = tuple(
        replace(job, worth=_times(job.worth, value), told_ppm=round(MILLION * work))
        if job.tenant == tenant
        else job
        for job in trace.jobs
    )
    told = {"tenant": tenant, "value": round(value, 4), "work": round(work, 4)}
    return replace(trace, jobs=jobs), told


def _times(worth: Worth | None, factor: float) -> Worth | None:
    if worth is None:
        return None
    loses = round(worth.loses_per_hour * factor)
    return replace(worth, amount=round(worth.amount * factor), loses_per_hour=loses)


def net(trace: Trace, played: Trace, options: dict[str, Any]) -> dict[str, float]:
    """The true result of a run for each tenant, in dollars.

    Args:
        trace: The truth.
        played: Reported trace.
        options: Of the policy.
    """
    simulation = Simulation(world_setup(played, "astraea", options, _ROUND_S))
    outcome = simulation.run()
    found = money_of(outcome, trace, simulation.standings, _ROUND_S)
    return {name: one.net for name, one in found.items()}


@lru_cache(maxsize=8)
def _honest(trace: Trace, options: tuple[tuple[str, Any], ...]) -> dict[str, float]:
    return net(trace, trace, dict(options))


def trials(
    path: Path, trace: Trace, options: dict[str, Any], count: int, kept: Path
) -> Iterator[dict[str, Any]]:
    """The trials of a world, those that were made before from their file."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    about = {"world": path.name, "digest": digest, **options}
    before: dict[int, dict[str, Any]] = {}
    if kept.exists():
        for line in kept.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            if all(one.get(key) == value for key, value in about.items()):
                before[one["number"]] = one
    for number in range(count):
        if number not in before:
            played, told = lied(trace, number)
            honest = _honest(trace, tuple(sorted(options.items())))[told["tenant"]]
            after = net(trace, played, options)[told["tenant"]]
            change = (after - honest) / max(1.0, abs(honest))
            one = {**about, "number": number, **told, "change": round(change, 6)}
            kept.parent.mkdir(parents=True, exist_ok=True)
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
            before[number] = one
        yield before[number]


def summed(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of some trials."""
    changes = [one["change"] for one in found]
    return {
        "world": found[0]["world"],
        "pricing": found[0]["pricing"],
        "guarantee": found[0]["guarantee"],
        "trials": len(changes),
        "gain": sum(change > _NOTEWORTHY for change in changes),
        "largest": round(max(changes), 4),
        "mean": round(fmean(changes), 4),
    }


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--guarantee", choices=("on", "off", "both"), default="both")
    parser.add_argument("--pricing", choices=("clearing", "posted", "none"), default="clearing")
    parser.add_argument("--jobs", type=int, help="only so many jobs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each world, with the guarantee and without."""
    chosen = _arguments(arguments)
    states = {"on": (True,), "off": (False,), "both": (True, False)}[chosen.guarantee]
    rows = Rows(as_json=chosen.json)
    try:
        for path in chosen.files:
            recipe = {"kind": "world", "file": path, "jobs": chosen.jobs}
            trace = WorldRecipe.model_validate(recipe).trace(0, ())
            for guarantee in states:
                options = {"pricing": chosen.pricing, "guarantee": guarantee}
                found = []
                for trial in trials(path, trace, options, chosen.count, chosen.results):
                    found.append(trial)
                    print(f"{path.name}: {len(found)} of {chosen.count}", file=sys.stderr)
                rows.add(summed(found))
    except EvaError as error:
        print(error.message, file=sys.stderr)
        return 2
    rows.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
