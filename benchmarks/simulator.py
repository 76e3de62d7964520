"""How fast a trace is simulated, and the simulation's results.

Run as `python -m benchmarks.simulator [--trace FILE] [--policy NAME[:PRESET] ...] [--jobs N]
[--accounting compat|production] [--interference FILE] [--bound] [--profile] [--slices N [--limit-s
S]] [--json]`. Without a file the trace is generated: 200 jobs, and the goals are for that size. The
production loop runs on virtual time between simulated adapters. All times are processor time, so
that a busy machine changes them little; the policy's own time is shown separately, since it runs in
another process in production. With slices, the figures of each part of the run show whether an
event takes longer as the run ages.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Figures, publish, surroundings
from eva_lab.runs import Chosen, named_policy, prepared
from eva_lab.simulator.cluster.delays import Accounting
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.results.metrics import usd
from eva_lab.simulator.run import Setup, Simulation, simulate
from eva_lab.traces import measured_interference, read_interference, read_trace
from eva_lab.traces.recipes import ProductionRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.loop.collector import spare_lasting_values

_GOALS_S = {"no_packing": 0.5, "eva_published": 3.0, "eva": 15.0}
"""For 200 jobs."""
_JOBS = 200
_SEED = 1


def measure(setup: Setup) -> Figures:
    """Run a trace, and say what it took."""
    start = time.thread_time()
    outcome = simulate(replace(setup, stopwatch=time.thread_time))
    elapsed = time.thread_time() - start
    planned = outcome.planning.total_s
    planning = {name: round(value, 6) for name, value in asdict(outcome.planning).items()}
    return {
        **outcome.row(),
        **{f"planning_{name}": value for name, value in planning.items()},
        "cpu_s": round(elapsed, 3),
        "loop_s": round(elapsed - planned, 3),
        "events_per_s": round(outcome.events / (elapsed - planned)),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _setup(chosen: argparse.Namespace) -> Setup:
    catalog = load_catalog(chosen.catalog)
    truth = measured_interference()
    if chosen.interference is not None:
        truth = read_interference(chosen.interference)
    if chosen.trace is None:
        trace = ProductionRecipe(kind="production", jobs=chosen.jobs).trace(_SEED, catalog)
    else:
        trace = read_trace(chosen.trace)
    idle, _ = named_policy("no_packing")
    return Setup(trace, catalog, idle, truth=truth, accounting=chosen.accounting)


def sliced(setup: Setup, slices: int, limit_s: float) -> Figures:
    """Run a trace and say of each slice of its jobs what an event took: does it grow with age?

    Args:
        setup: The run.
        slices: As many, of equal numbers of jobs.
        limit_s: The run ends after so many seconds of processor time, at the end of a slice.

    Returns:
        Per slice the jobs that had ended by its end, the mean of jobs alive, processor time per
        event with and without the policy, and resident memory, in all and per job alive.
    """
    simulation = Simulation(replace(setup, stopwatch=time.thread_time))
    total, rows, begun = len(setup.trace.jobs), [], time.thread_time()
    for number in range(slices):
        start, events, planned = time.thread_time(), simulation.events, simulation.planned_s
        alive = steps = 0
        more = True
        while more and simulation.finished < total * (number + 1) // slices:
            more = simulation.step()
            alive, steps = alive + simulation.alive, steps + 1
        took, heard = time.thread_time() - start, max(1, simulation.events - events)
        memory = psutil.Process().memory_info().rss
        live = alive / max(1, steps)
        rows.append(
            {
                "jobs_ended": simulation.finished,
                "jobs_alive": round(live, 1),
                "us_per_event": round(1e6 * took / heard, 1),
                "loop_us_per_event": round(
                    1e6 * (took - simulation.planned_s + planned) / heard, 1
                ),
                "memory_mib": memory >> 20,
            }
        )
        if not more or time.thread_time() - begun > limit_s:
            break
    return {"slices": rows, "cpu_s": round(time.thread_time() - begun, 1)}


def _profiled(setup: Setup) -> Any:
    profile = cProfile.Profile()
    figures = profile.runcall(measure, setup)
    pstats.Stats(profile, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; the exit code is 1 if a trace of 200 jobs took too long."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, help="by default one that is made up")
    parser.add_argument("--jobs", type=int, default=_JOBS, help="of a trace that is made up")
    parser.add_argument("--policy", action="append", default=[], help="default: those with a goal")
    parser.add_argument("--accounting", type=Accounting, default=Accounting.COMPAT)
    parser.add_argument("--interference", type=Path)
    parser.add_argument("--catalog", type=Path)
    parser.add_argument("--bound", action="store_true", help="find the reference bound too")
    parser.add_argument("--profile", action="store_true", help="by function, to standard error")
    parser.add_argument("--slices", type=int, help="say what an event takes as the run ages")
    parser.add_argument("--limit-s", type=float, default=600, help="end such a run after that")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    setup = _setup(chosen)
    spare_lasting_values()  # as `eva simulate` does
    figures: Figures = {"surroundings": surroundings()}
    missed = []
    for name in chosen.policy or _GOALS_S:
        ready = prepared(Chosen(name, {}), setup)
        if chosen.slices:
            figures[name] = sliced(ready, chosen.slices, chosen.limit_s)
            continue
        figures[name] = _profiled(ready) if chosen.profile else measure(ready)
        limit = _GOALS_S.get(name) if len(setup.trace.jobs) == _JOBS else None
        if limit is not None and figures[name]["cpu_s"] > limit:
            missed.append(f"{name} within {limit:g} s")
    if chosen.bound:
        start = time.thread_time()
        bound = usd(reference_bound(setup.trace, setup.catalog))
        took = round(time.thread_time() - start, 3)
        figures["reference_bound"] = {"cost_usd": bound, "cpu_s": took}
    return publish({**figures, "missed": missed}, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
