"""How long short tasks wait for room in a fixed cluster, by policy, and what their servers cost.

Run as `python -m benchmarks.short_jobs FILE [--policy NAME ...] [--json]`, with a trace in the form
of Hawk's simulator (a job a line: arrival, tasks, mean and each duration). The production control
loop runs on virtual time. Policies, all with long tasks by arrival on servers that are always
there:

- `default`: one line for all short tasks, servers for them by what waits (`resize: need`);
- `published-size`: the same line, servers by the share of servers with long tasks;
- `no-spot`: the same line, all servers for short tasks on demand;
- `published`: CloudCoaster as its paper has it, with a queue at each server that a job asks;
- `eagle`: that without transient servers;
- `list`: a plain list scheduler with the rule of `default`, beside the control loop
  (`benchmarks/list_scheduler.py`).

Times are those of the simulated cluster; `cpu_s` is processor time. Equal arguments give equal
figures, but for that.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.list_scheduler import ListScheduler
from eva_lab.experiments.fixed import ClusterSection, Pair, figures_of, saved_share, short_problem
from eva_lab.simulator.cluster.supply.fault_injector import Faults
from eva_lab.simulator.results.metrics import RunRecord
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces.recipes import HawkRecipe, Resampling
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.app.sections.base import ShortSection
from eva_master.model.planning.estimate import Estimates
from eva_master.model.trace import SLOT, Trace
from eva_wire.values.ids import MILLION

CUTOFF_S = 90.5811
"""Jobs whose tasks take less on average are short; that of the Yahoo trace in Hawk's paper."""
_ROUND_MS = 250
"""From one plan to the next at least."""
_LIST = "list"
POLICIES = ("default", "published-size", "no-spot", "published", "eagle", _LIST)
_PUBLISHED_SIZE = ("published-size", "published", "eagle")
_NO_SPOT = ("no-spot", "eagle")
_PROBES = ("published", "eagle")
_ROUNDED = 4


def pair(policy: str, cluster: ClusterSection, chosen: argparse.Namespace) -> Pair:
    """The policy for short tasks, and the one for long ones.

    Args:
        policy: One of `POLICIES`.
        cluster: On what they run.
        chosen: The options of the command line.
    """
    share = 0.0 if policy in _NO_SPOT else chosen.transient_share
    options = {
        "slots": cluster.short,
        "slot_milli_cpus": SLOT.milli_cpus,
        "slot_memory_mib": SLOT.memory_mib,
        "transient_share_ppm": round(share * MILLION),
        "threshold_ppm": round(chosen.threshold * MILLION),
        "resize": "published" if policy in _PUBLISHED_SIZE else "need",
        "placement": "probes" if policy in _PROBES else "line",
        "seed": chosen.seed,
        "largest_share_ppm": MILLION,  # there is one type in one zone
    }
    return Pair("cloudcoaster", options, "fifo", {}, cluster.cutoff)


def simulated(
    trace: Trace, policy: str, cluster: ClusterSection, chosen: argparse.Namespace
) -> dict[str, Any]:
    """Simulate a trace under a policy.

    Args:
        trace: Arrays with a duration of each task.
        policy: One of `POLICIES`.
        cluster: On what it runs.
        chosen: The options of the command line.
    """
    setup = Setup(
        trace,
        cluster.fixed.catalog,
        pair(policy, cluster, chosen).policy(),
        nodes=cluster.fixed.nodes,
        estimates=Estimates.OFF,
        round_gap_ms=_ROUND_MS,
        faults=Faults(failures_per_hour=chosen.revocations),
        seed=chosen.seed,
        keep_record=True,
    )
    gc.collect()
    start = time.thread_time()
    outcome = Simulation(setup).run()
    cpu_s = time.thread_time() - start
    return {
        **_figures(policy, outcome.record, trace, cluster, chosen),
        "cost_usd": round(outcome.cost_usd, 2),
        "rounds": outcome.rounds,
        "cpu_s": round(cpu_s, 2),
    }


def listed(trace: Trace, cluster: ClusterSection, chosen: argparse.Namespace) -> dict[str, Any]:
    """The figures of a plain list scheduler, which has neither revocations nor a bill.

    Args:
        trace: Arrays with a duration of each task.
        cluster: On what it runs.
        chosen: The options of the command line.
    """
    start = time.thread_time()
    record = ListScheduler(trace, cluster, chosen.transient_share).record()
    cpu_s = time.thread_time() - start
    return {**_figures(_LIST, record, trace, cluster, chosen), "cpu_s": round(cpu_s, 2)}


def _figures(
    policy: str,
    record: RunRecord,
    trace: Trace,
    cluster: ClusterSection,
    chosen: argparse.Namespace,
) -> dict[str, Any]:
    figures = figures_of(record, trace, cluster)
    saved = saved_share(figures["transients_normalised"], cluster, chosen.transient_share)
    rounded = {name: round(value, _ROUNDED) for name, value in figures.items()}
    return {"policy": policy, **rounded, "saved_share": round(saved, _ROUNDED)}


def _trace(chosen: argparse.Namespace) -> Trace:
    bootstrap = chosen.bootstrap and Resampling(jobs=chosen.bootstrap, block=chosen.block)
    files = tuple(chosen.file)
    recipe = HawkRecipe(
        kind="hawk", files=files, jobs=chosen.jobs, load=chosen.load, bootstrap=bootstrap or None
    )
    return recipe.trace(chosen.seed, ())


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="+", type=Path, help="traces; several with --bootstrap alone")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="by default all")
    parser.add_argument("--servers", type=int, default=4000)
    parser.add_argument("--short", type=int, default=80, help="those for short tasks alone, N")
    parser.add_argument("--transient-share", type=float, default=0.5, help="p")
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--spot-ratio", type=float, default=3.0, help="r")
    parser.add_argument("--cutoff", type=float, default=CUTOFF_S, help="of short jobs, in seconds")
    parser.add_argument("--provisioning", type=float, default=120.0, help="in seconds")
    parser.add_argument("--load", type=float, default=1.0, help="arrivals so many times as dense")
    parser.add_argument("--jobs", type=int, help="only so many jobs")
    parser.add_argument("--bootstrap", type=int, help="so many jobs, of stretches of the files")
    parser.add_argument("--block", type=int, default=200, help="jobs of a stretch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--slots-per-node", type=int, default=1, help="servers that are one machine"
    )
    parser.add_argument("--revocations", type=float, default=0.0, help="per hour and bought server")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _shown(found: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("", *(one["policy"] for one in found))
    for name in found[0]:
        if name != "policy":
            table.add_row(name, *(str(one.get(name, "")) for one in found))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each policy."""
    chosen = _arguments(arguments)
    cluster = ClusterSection.model_validate(
        {
            "servers": chosen.servers,
            "short": chosen.short,
            "spot_ratio": chosen.spot_ratio,
            "provisioning": f"{round(1000 * chosen.provisioning)}ms",
            "slots_per_node": chosen.slots_per_node,
            "cutoff": f"{round(1000 * chosen.cutoff)}ms",
        }
    )
    spare_lasting_values()  # as `eva simulate` does
    trace = _trace(chosen)
    names = chosen.policy or POLICIES
    for policy in names:
        if policy == _LIST:
            continue
        choice = pair(policy, cluster, chosen)
        section = ShortSection(name=choice.front, options=dict(choice.front_options))
        if why := short_problem(section, cluster):
            print(f"{policy}: {why}", file=sys.stderr)
            return 2
    found = []
    for policy in names:
        if policy == _LIST:
            found.append(listed(trace, cluster, chosen))
        else:
            found.append(simulated(trace, policy, cluster, chosen))
        if chosen.json:
            print(json.dumps(found[-1]), flush=True)
    if not chosen.json:
        Console().print(_shown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
