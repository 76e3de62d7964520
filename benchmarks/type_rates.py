"""How far rates on GPU types are off that nobody measured, by what they are inferred from.

Run as `python -m benchmarks.type_rates FILE [--json]`, with Gavel's table of rates: workload,
number of GPUs, type. Each workload is known on one type and asked for on another, every pair once.
An error is the factor between the rate that is expected and the one that was measured, above 1
either way.

Rows: all types alike; data sheets' memory bandwidth (the prior), and their peak operations; the
formula of HadarE in two readings; and what is inferred once some other workloads were measured on
all types, from the prior and from types that count as alike. Random draws have a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean, median

from rich.console import Console
from rich.table import Table

from eva_master.adapters.catalog.gpus import GPUS, SHEETS
from eva_master.learning.speeds.first_rates import first_rate_ppm
from eva_master.learning.speeds.type_rates import Row, type_speeds
from eva_master.model.job import Training
from eva_wire.values.ids import MILLION, Family, Workload

Measured = Mapping[str, Mapping[Family, float]]
Speeds = Mapping[Family, float]
_OTHERS = (1, 2, 4, 8, 16)
_DRAWS = 20
_ALIKE = 500


def read(path: Path) -> dict[str, dict[Family, float]]:
    """The rates of each workload with one GPU, on the types that data sheets tell of."""
    found = {}
    for workload, by_number in json.loads(path.read_text()).items():
        known = {
            Family(name): rate
            for name, rate in by_number.get("1", {}).items()
            if name.upper() in GPUS and rate > 0
        }
        if len(known) > 1:
            found[workload] = known
    return found


def errors(known: Speeds, expected: Mapping[Family, float]) -> list[float]:
    """Logarithms of the factors by which a workload's rates on each pair of types are off."""
    return [
        abs(log(known[one] * expected[other] / expected[one] / known[other]))
        for one in known
        for other in known
        if one != other
    ]


def figures(found: Iterable[float]) -> dict[str, float]:
    """Factors: the median, the root mean square, and the one that a tenth exceeds."""
    ordered = sorted(found)
    return {
        "median": round(exp(median(ordered)), 3),
        "rms": round(exp(fmean(it * it for it in ordered) ** 0.5), 3),
        "tenth": round(exp(ordered[int(0.9 * len(ordered))]), 3),
    }


def inferred(measured: Measured, sheets: Mapping[Family, int], others: int | None) -> list[float]:
    """Errors where some other workloads were measured on all types; all others for `None`."""
    draw, found = random.Random(17), []
    for workload, known in measured.items():
        rest = sorted(set(measured) - {workload})
        for _ in range(1 if others is None else _DRAWS):
            seen = rest if others is None else draw.sample(rest, min(others, len(rest)))
            expected = type_speeds(sheets, _rows({name: measured[name] for name in seen}))
            found += errors(known, expected.of(Workload(workload)))
    return found


def _rows(measured: Measured) -> tuple[Row, ...]:
    return tuple(
        ((Workload(workload), family), round(rate * MILLION))
        for workload, known in sorted(measured.items())
        for family, rate in sorted(known.items())
    )


def compared(measured: Measured) -> dict[str, dict[str, float]]:
    """The errors of each way to infer rates."""
    families = sorted({family for known in measured.values() for family in known})
    names = {family: family.upper() for family in families}
    sheets = {family: GPUS[name] for family, name in names.items()}
    alike = dict.fromkeys(families, _ALIKE)
    gpus = {family: SHEETS[name] for family, name in names.items()}
    fixed: dict[str, Mapping[Family, float]] = {
        "all types alike": alike,
        "bandwidth (the prior)": sheets,
        "peak operations": {family: it.gflops for family, it in gpus.items()},
        "HadarE: root of operations per memory": {
            family: first_rate_ppm(it, Training()) for family, it in gpus.items()
        },
        "HadarE: operations per root of memory": {
            family: it.gflops / it.memory_gib**0.5 for family, it in gpus.items()
        },
    }
    found = {
        name: figures(off for known in measured.values() for off in errors(known, speeds))
        for name, speeds in fixed.items()
    }
    for prior, told in ((sheets, "the prior"), (alike, "all alike")):
        for others in _OTHERS:
            found[f"{told} and {others} others"] = figures(inferred(measured, prior, others))
        found[f"{told} and all others"] = figures(inferred(measured, prior, None))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the errors of each way."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    found = compared(read(chosen.file))
    if chosen.json:
        print(json.dumps(found))
        return 0
    table = Table("expected by", "median", "rms", "a tenth above")
    for name, row in found.items():
        table.add_row(name, *map(str, row.values()))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
