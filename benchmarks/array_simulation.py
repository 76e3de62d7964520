"""The cost of an array of tasks of one second in the simulator.

Run as `python -m benchmarks.array_simulation [--tasks N] [--nodes N] [--json]`. One
array arrives at owned nodes of 16 slots each; boots of machines would be most of what is simulated
otherwise. The production loop and a policy run on virtual time, as in `eva simulate`. All times are
processor time. A tenth of the tasks is simulated first, so that growth with their number shows.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.harness import Figures, options, publish, surroundings
from eva_lab.runs import Chosen, named_policy, prepared
from eva_lab.simulator.run import Setup, simulate
from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.app.nodes.simulated import nodes_of
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Workload

TASKS = 100_000
NODES = 50
GOAL_S = 60.0
"""Seconds of processor time for 100,000 tasks."""
GOAL_RATIO = 1.3
"""How much more one of all tasks may cost than one of a tenth of them."""
_NODE = "c7i.4xlarge"
_SLOTS = 16
_TASK_MS = 1_000
_POLICY = "eva"


def measure(tasks: int, nodes: int) -> Figures:
    """Simulate one array to its end.

    Args:
        tasks: Its tasks.
        nodes: Machines, of 16 slots each.
    """
    task = TraceTask(Resources(0, 1_000, 1_024))
    job = TraceJob(
        "array",
        Workload("short"),
        0,
        _TASK_MS,
        (task,) * tasks,
        kind=JobKind.ARRAY,
        concurrency=nodes * _SLOTS,
    )
    catalog = load_catalog()
    own = nodes_of([f"node{number}={_NODE}" for number in range(nodes)], None, catalog)
    idle, _ = named_policy("no_packing")
    setup = prepared(Chosen(_POLICY, {}), Setup(Trace("array", (job,)), catalog, idle, nodes=own))
    start = time.thread_time()
    outcome = simulate(replace(setup, stopwatch=time.thread_time))
    elapsed = time.thread_time() - start
    return {
        "cpu_s": round(elapsed, 2),
        "ms_per_task": round(1_000 * elapsed / tasks, 3),
        "planning_ms_per_task": round(1_000 * outcome.planning.total_s / tasks, 3),
        "rounds": outcome.rounds,
        "simulated_h": round(outcome.end_h, 2),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    chosen: argparse.Namespace = options(__doc__, arguments, tasks=TASKS, nodes=NODES)
    spare_lasting_values()  # as `eva simulate` does
    figures: Figures = {"surroundings": surroundings(), "policy": _POLICY}
    small = measure(max(1, chosen.tasks // 10), chosen.nodes)
    whole = measure(chosen.tasks, chosen.nodes)
    figures |= {f"{max(1, chosen.tasks // 10)}": small, f"{chosen.tasks}": whole}
    figures["ratio"] = round(whole["ms_per_task"] / small["ms_per_task"], 3)
    missed = [] if whole["cpu_s"] <= GOAL_S else ["cpu_s"]
    if chosen.tasks >= TASKS and figures["ratio"] > GOAL_RATIO:
        missed.append("ratio")
    return publish({**figures, "missed": missed}, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
