"""Cost and work of a cluster in which many owners share workloads, by those with one owner.

Run as `python -m benchmarks.owners [--jobs N] [--owners N] [--workloads N] [--seeds N] [--policy
NAME] [--json]`. Each owner learns by its own programs and hears of others by medians of three. The
jobs of a trace belong to one owner, and in a second run, drawn at random, to many. `cost` is the
ratio of what instances cost. `work` is that of the calls of functions that snapshots and plans
take, the same on every machine. Both are of the sums over all seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from benchmarks.calls import Calls
from benchmarks.harness import Figures, publish, surroundings
from eva_lab.runs import Chosen, measured_interference, named_policy, prepared
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces.recipes import ProductionRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.control.rounds import cycle
from eva_master.model.trace import Trace
from eva_master.packing.local_search import search
from eva_wire.values.ids import Workload

JOBS, OWNERS, SEEDS = 120, 50, 3
MOST_COST, MOST_WORK = 1.03, 1.10
"""Goals: so many times what one owner costs, and as much work."""


def _owned(trace: Trace, owners: int, workloads: int, seed: int) -> Trace:
    """The trace with so many workloads, and with owners drawn at random."""
    rng, names = Random(seed), sorted({job.workload for job in trace.jobs})

    def name(workload: Workload) -> Workload:
        if workloads <= len(names):
            return names[names.index(workload) % workloads]
        return Workload(f"{workload}.{rng.randrange(-(-workloads // len(names)))}")

    named = [replace(job, workload=name(job.workload)) for job in trace.jobs]
    jobs = (replace(job, owner=f"owner{rng.randrange(owners)}") for job in named)
    return replace(trace, jobs=tuple(jobs))


@dataclass(frozen=True, slots=True)
class Load:
    """The jobs of a run.

    Attributes:
        jobs: How many there are.
        workloads: How many workloads they have.
        seed: Draws the trace.
        policy: Plans them.
    """

    jobs: int
    workloads: int
    seed: int
    policy: str


def measure(load: Load, owners: int) -> tuple[float, int]:
    """Run jobs of so many owners.

    Returns:
        The price of all instances in dollars, and the calls that snapshots and plans took.
    """
    catalog = load_catalog(None)
    drawn = ProductionRecipe(kind="production", jobs=load.jobs).trace(load.seed, catalog)
    trace = _owned(drawn, owners, load.workloads, load.seed)
    idle, _ = named_policy("no_packing")
    setup = Setup(trace, catalog, idle, truth=measured_interference())
    setup, calls = prepared(Chosen(load.policy, {}), setup), Calls()
    plan, make = setup.policy.plan, cycle.snapshot

    class Counted:
        """The policy, whose work is counted."""

        def __getattr__(self, name: str) -> object:
            return getattr(setup.policy, name)

        def plan(self, *arguments: object) -> object:
            """Plan, and count the calls."""
            with calls.counting():
                return plan(*arguments)  # type: ignore[arg-type]

    def snapshot(*arguments: object) -> object:
        with calls.counting():
            return make(*arguments)  # type: ignore[arg-type]

    # The search in Python, so that its calls count too.
    compiled, search.compiled = search.compiled, lambda: None  # type: ignore[assignment]
    cycle.snapshot = snapshot  # type: ignore[assignment]
    try:
        outcome = Simulation(replace(setup, policy=Counted())).run()  # type: ignore[arg-type]
    finally:
        cycle.snapshot, search.compiled = make, compiled
    return outcome.cost_usd, calls.made


def ratios(load: Load, owners: int, seeds: int) -> tuple[float, float]:
    """Cost and work with many owners, each by that with one; the load's seed is the first."""
    sums: dict[int, list[float]] = {1: [0.0, 0.0], owners: [0.0, 0.0]}
    for seed in range(load.seed, load.seed + seeds):
        for number, total in sums.items():
            for place, figure in enumerate(measure(replace(load, seed=seed), number)):
                total[place] += figure
    (one_cost, one_work), (cost, work) = sums[1], sums[owners]
    return cost / one_cost, work / one_work


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"default: {JOBS}")
    parser.add_argument("--owners", type=int, default=OWNERS, help=f"default: {OWNERS}")
    parser.add_argument("--workloads", type=int, default=1, help="that jobs have; default: 1")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"traces; default: {SEEDS}")
    parser.add_argument("--policy", default="eva", help="default: eva")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    load = Load(chosen.jobs, chosen.workloads, 1, chosen.policy)
    cost, work = ratios(load, chosen.owners, chosen.seeds)
    figures: Figures = surroundings() | {"cost": round(cost, 4), "work": round(work, 4)}
    goals = (("cost", MOST_COST), ("work", MOST_WORK))
    figures["missed"] = [name for name, most in goals if figures[name] > most]
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
