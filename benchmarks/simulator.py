"""How fast a trace is simulated, and what comes of it.

Run as `python -m benchmarks.simulator --trace FILE [--policy NAME[:PRESET] ...] [--accounting
compat|production] [--interference FILE] [--profile] [--json]`. The production loop runs on virtual
time between simulated adapters. All times are processor time, so that a busy machine changes them
little; the time that the policy itself takes is told apart, as it runs in another process in
production.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.traces import measured_interference, read_interference, read_trace
from eva_master.app.simulate import named_policy
from eva_master.simulation.delays import Accounting
from eva_master.simulation.experiment import Setup, simulate


def measure(setup: Setup) -> dict[str, Any]:
    """Run a trace, and say what it took."""
    start = time.thread_time()
    outcome = simulate(setup)
    elapsed = time.thread_time() - start
    planned = outcome.planning.total_s
    return {
        **outcome.row(),
        "planning": {name: round(value, 6) for name, value in asdict(outcome.planning).items()},
        "cpu_s": round(elapsed, 3),
        "loop_s": round(elapsed - planned, 3),
        "events_per_s": round(outcome.events / (elapsed - planned)),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--policy", action="append", default=[])
    parser.add_argument("--accounting", type=Accounting, default=Accounting.COMPAT)
    parser.add_argument("--interference", type=Path)
    parser.add_argument("--catalog", type=Path)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    trace, catalog = read_trace(chosen.trace), load_catalog(chosen.catalog)
    truth = read_interference(chosen.interference) if chosen.interference else None
    for name in chosen.policy or ["no_packing"]:
        policy, gap = named_policy(name)
        setup = Setup(
            trace,
            catalog,
            policy,
            truth=truth or measured_interference(),
            accounting=chosen.accounting,
            round_gap_s=gap,
            stopwatch=time.thread_time,
        )
        profile = cProfile.Profile()
        figures = profile.runcall(measure, setup) if chosen.profile else measure(setup)
        if chosen.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        if chosen.json:
            print(json.dumps({"policy": name, **figures}))
        else:
            print(name, *(f"  {key}: {value}" for key, value in figures.items()), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
