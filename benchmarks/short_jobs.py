"""How long short tasks wait for room in a fixed cluster, by policy, and what their servers cost.

Run as `python -m benchmarks.short_jobs FILE [--policy NAME ...] [--json]`, with a trace in the form
of Hawk's simulator (a job a line: arrival, tasks, mean and each duration). The production control
loop runs on virtual time. Policies, all with long tasks by arrival on servers that are always
there:

- `default`: one line for all short tasks, servers for them by what waits (`resize: need`);
- `published-size`: the same line, servers by the share of servers with long tasks;
- `no-spot`: the same line, all servers for short tasks on demand.

Times are those of the simulated cluster; `cpu_s` is processor time. The same arguments give the
same figures, but for that.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.adapters.traces.recipes import Bootstrap, HawkRecipe
from eva_master.app.simulate import named_policy
from eva_master.model.ids import MILLION, Price
from eva_master.model.planning.estimate import Estimates
from eva_master.model.trace import SLOT, Trace
from eva_master.packing.parts.splitter import Splitter, below
from eva_master.simulation.cluster.fault_injector import Faults
from eva_master.simulation.results.short_tasks import short_tasks
from eva_master.simulation.run import Setup, Simulation
from eva_master.simulation.scenario.fixed_cluster import FixedCluster

CUTOFF_S = 90.5811
"""Jobs whose tasks take less on average are short; that of the Yahoo trace in Hawk's paper."""
_ROUND_MS = 250
_SPOT: Mapping[str, Any] = {"largest_share_ppm": MILLION, "explained": False}
"""There is one type in one zone."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is simulated; see the options of the command line."""

    servers: int
    short: int
    transient_share: float
    threshold: float
    spot_ratio: float
    cutoff_s: float
    seed: int
    revocations: float
    slots_per_node: int
    provisioning_s: float

    @property
    def cluster(self) -> FixedCluster:
        """The servers."""
        return FixedCluster(
            servers=self.servers,
            short=self.short,
            price=Price(MILLION),
            spot_ratio=self.spot_ratio,
            provisioning_ms=round(self.provisioning_s * 1000),
            slots_per_node=self.slots_per_node,
        )

    def options(self, policy: str) -> dict[str, Any]:
        """The options of the policy for short tasks."""
        share = 0.0 if policy == "no-spot" else self.transient_share
        resize = "published" if policy == "published-size" else "need"
        return {
            **_SPOT,
            "slots": self.short,
            "slot_milli_cpus": SLOT.milli_cpus,
            "slot_memory_mib": SLOT.memory_mib,
            "transient_share_ppm": round(share * MILLION),
            "threshold_ppm": round(self.threshold * MILLION),
            "resize": resize,
        }


POLICIES = ("default", "published-size", "no-spot")


def simulated(trace: Trace, policy: str, wanted: Wanted) -> dict[str, Any]:
    """Simulate a trace under a policy.

    Args:
        trace: Arrays with a duration of each task.
        policy: One of `POLICIES`.
        wanted: The cluster, and what may happen.
    """
    cutoff_ms = wanted.cutoff_s * 1000
    short = {job.id for job in trace.jobs if job.duration_ms < cutoff_ms}
    cluster = wanted.cluster
    front, _ = named_policy("cloudcoaster", wanted.options(policy))
    back, _ = named_policy("fifo", {"explained": False})
    setup = Setup(
        trace,
        cluster.catalog,
        Splitter(front, back, below(-int(-cutoff_ms // 1)), shares=True),
        nodes=cluster.nodes,
        estimates=Estimates.OFF,
        round_gap_ms=_ROUND_MS,
        faults=Faults(failures_per_hour=wanted.revocations),
        seed=wanted.seed,
        keep_record=True,
    )
    gc.collect()
    start = time.thread_time()
    outcome = Simulation(setup).run()
    cpu_s = time.thread_time() - start
    found = short_tasks(outcome.record, short)
    normalised = found.transients_mean / wanted.spot_ratio
    replaced = wanted.short * wanted.transient_share
    return {
        "policy": policy,
        "short_wait_mean_s": round(found.short.mean_s, 3),
        "short_wait_max_s": round(found.short.max_s, 3),
        "long_wait_mean_s": round(found.long.mean_s, 3),
        "transients_normalised": round(normalised, 3),
        "transients_peak": found.transients_peak,
        "saved_share": round(1 - normalised / replaced, 4) if replaced else 0.0,
        "life_mean_h": round(found.life_mean_h, 3),
        "life_max_h": round(found.life_max_h, 3),
        "reruns": found.reruns,
        "cost_usd": round(outcome.cost_usd, 2),
        "cpu_s": round(cpu_s, 2),
        "rounds": outcome.rounds,
        "short": asdict(found.short),
        "long": asdict(found.long),
    }


def _trace(chosen: argparse.Namespace) -> Trace:
    bootstrap = chosen.bootstrap and Bootstrap(jobs=chosen.bootstrap, block=chosen.block)
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


def _shown(found: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    table = Table("", *(one["policy"] for one in found))
    for name, value in found[0].items():
        if name != "policy" and not isinstance(value, dict):
            table.add_row(name, *(str(one[name]) for one in found))
    yield table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each policy."""
    chosen = _arguments(arguments)
    wanted = Wanted(
        servers=chosen.servers,
        short=chosen.short,
        transient_share=chosen.transient_share,
        threshold=chosen.threshold,
        spot_ratio=chosen.spot_ratio,
        cutoff_s=chosen.cutoff,
        seed=chosen.seed,
        revocations=chosen.revocations,
        slots_per_node=chosen.slots_per_node,
        provisioning_s=chosen.provisioning,
    )
    spare_lasting_values()  # as `eva simulate` does
    trace = _trace(chosen)
    found = []
    for policy in chosen.policy or POLICIES:
        found.append(simulated(trace, policy, wanted))
        if chosen.json:
            print(json.dumps(found[-1]), flush=True)
    if not chosen.json:
        for table in _shown(found):
            Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
