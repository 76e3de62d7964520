"""How soon a fleet of several GPU types is done with its jobs, by policy, and how soon it could be.

Run as `python -m benchmarks.fleet FILE [--policy NAME[:PRESET] ...] [--move-s S]
[--rates stated|learned] [--slot-s S ...] [--json]`, with a CSV file of jobs and their rates on each
GPU type (`kind: gpus` of `eva experiment`). The production control loop runs on virtual time. The
fleet has 5 servers of 4 GPUs of each type that the file names. A slot is both: from one plan to the
next at least, and for how long a place is kept, but for a minute.

`bound_h` is a lower bound of the total time, even if moves take no time. `moves_per_job` says how
often a task of a job moved, `changed_rounds` in which share of the rounds a task was started, or
stopped for another one, `used` which share of the GPUs' time tasks held, `nearly_full` for which
part of the time they held nine of ten GPUs. Times are those of the simulated fleet; `cpu_s` is
processor time. Equal arguments give equal figures, but for that.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Rows
from benchmarks.slots import Slot
from eva_lab.experiments.fleet import ServersSection, awaited, fleet_figures, nodes_of
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces.fleets.gpu_jobs import read_gpu_jobs
from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.policies import forking_by
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.trace import Trace
from eva_wire.values.errors import EvaError

POLICIES = ("hadar", "eva", "fifo")
"""Policies that are compared unless others are named."""
_BY_ITERATIONS = "hadar_published"
"""Policies that compare jobs by their iterations, so that these are what their programs count."""
_FIGURES = (
    "total_h",
    "mean_h",
    "median_h",
    "bound_h",
    "moves_per_job",
    "changed_rounds",
    "used",
    "nearly_full",
)
_ROUNDED = 4


def simulated(
    trace: Trace, policy: str, fleet: dict[str, ServersSection], slot: Slot
) -> dict[str, Any]:
    """Simulate a trace under a policy.

    Args:
        trace: Training jobs.
        policy: The policy's name, and maybe its preset.
        fleet: On what it runs.
        slot: How often there is a plan.
    """
    gap_ms = 1_000 * slot.round_s
    setup = Setup(
        awaited(trace, gap_ms),
        (),
        slot.policy(policy),
        nodes=nodes_of(fleet),
        round_gap_ms=gap_ms,
        partitions=Partitions(
            whole=Partition(default=True, forking=forking_by(OnePolicySection(name=policy)))
        ),
        keep_record=True,
    )
    gc.collect()
    start = time.thread_time()
    outcome = Simulation(setup).run()
    cpu_s = time.thread_time() - start
    figures = fleet_figures(outcome, trace, fleet, gap_ms)
    return {
        "policy": policy,
        "round_s": slot.round_s,
        **{name: round(figures[name], _ROUNDED) for name in _FIGURES},
        "cpu_s": round(cpu_s, 2),
    }


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--policy", action="append", help=f"by default {' and '.join(POLICIES)}")
    parser.add_argument("--servers", type=int, default=5, help="of each GPU type")
    parser.add_argument("--gpus", type=int, default=4, help="of each server")
    parser.add_argument("--move-s", type=float, default=10.0, help="what each start of a job takes")
    parser.add_argument(
        "--round-s", type=int, default=360, help="from one plan to the next at least"
    )
    parser.add_argument(
        "--slot-s", type=int, action="append", help="the same, and for how long a place is kept"
    )
    parser.add_argument("--jobs", type=int, help="only so many jobs")
    parser.add_argument(
        "--rates",
        choices=("stated", "learned"),
        default="stated",
        help="learned: no policy is told how fast jobs are on any type before that was measured",
    )
    parser.add_argument("--split-batch", action="store_true", help="gangs divide their batches")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each policy."""
    chosen = _arguments(arguments)
    spare_lasting_values()  # as `eva simulate` does
    move = f"{round(1000 * chosen.move_s)}ms"
    found = Rows(as_json=chosen.json)
    try:
        stated = {
            "kind": "gpus",
            "file": chosen.file,
            "jobs": chosen.jobs,
            "move": move,
            "rates": chosen.rates,
            "split_batch": chosen.split_batch,
        }
        recipe = GpusRecipe.model_validate(stated)
        counting = GpusRecipe.model_validate({**stated, "counts": "iterations"})
        types = [family for family, _ in read_gpu_jobs(chosen.file)[0].rates]
        servers = ServersSection(servers=chosen.servers, gpus=chosen.gpus)
        fleet = {str(family): servers for family in types}
        slots = [Slot(it, leased=True) for it in chosen.slot_s or ()] or [Slot(chosen.round_s)]
        for policy in chosen.policy or POLICIES:
            trace = (counting if policy == _BY_ITERATIONS else recipe).trace(0, ())
            for slot in slots:
                found.add(simulated(trace, policy, fleet, slot))
    except EvaError as error:
        print(error.message, file=sys.stderr)
        for problem in getattr(error, "problems", ()):
            print(f"  {chosen.file}:{problem.line}: {problem.message}", file=sys.stderr)
        return 2
    found.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
