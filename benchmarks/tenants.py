"""Results of tenants that share a cluster, by policy, and their upper bound.

Run as `python -m benchmarks.tenants WORLD.json [--policy NAME[:PRESET] ...] [--json]`, with a world
of tenants (`kind: world` of `eva experiment`). The production control loop runs on virtual time; a
plan is made every hour.

`revenue` is the worth of all jobs when they end, in dollars, counted at the end of the hour, as
values of worlds are; `bound` is an upper bound of it, and `share` the part of it. `worse_off`
tenants have less than alone: value and income less payments is below what their jobs would be worth
on their own servers under `astraea`, whatever the policy here; `least_gain` is the gain of the
tenant that sharing serves worst, as a part of that. `borrowed_jobs` ever ran on GPUs beyond their
tenant's quota. `paid` and `earned` are what tenants owe each other by that, in dollars.
`alpha_variance` is that of alpha, a tenant's part of all gains over its part of the cluster, over
tenants with jobs. `total_h` is from the first arrival to the last end, and `cpu_s` processor time.
Equal arguments give equal figures, but for that.
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
from eva_lab.experiments.tenant_worlds import world_figures, world_setup
from eva_lab.runs import options_of
from eva_lab.simulator.run import Simulation
from eva_lab.traces.fleets.recipes import WorldRecipe
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.model.trace import Trace
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import MILLION

POLICIES = ("astraea", "gandiva_fair", "hived")
"""Policies that are compared unless others are named."""
_ROUND_S = 3600
_ROUNDED = 4


def simulated(trace: Trace, policy: str, options: dict[str, Any]) -> dict[str, Any]:
    """Simulate a world under a policy.

    Args:
        trace: Trace of a world.
        policy: The policy's name, and maybe its preset.
        options: Of the policy; those that it does not have are left out.
    """
    known = options_of(policy)
    chosen = {name: value for name, value in options.items() if name in known}
    setup = world_setup(trace, policy, chosen, _ROUND_S)
    gc.collect()
    start = time.thread_time()
    simulation = Simulation(setup)
    outcome = simulation.run()
    cpu_s = time.thread_time() - start
    figures = world_figures(outcome, trace, simulation, _ROUND_S)
    return {
        "policy": policy,
        **{name: round(value, _ROUNDED) for name, value in figures.items()},
        "cpu_s": round(cpu_s, 2),
    }


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--policy", action="append", help=f"by default {' and '.join(POLICIES)}")
    parser.add_argument("--jobs", type=int, help="only so many jobs")
    parser.add_argument("--convex", action="store_true", help="values fall with a power of time")
    parser.add_argument("--recall", choices=("checkpoint", "never"))
    parser.add_argument("--pricing", choices=("clearing", "posted", "none"))
    parser.add_argument("--spread", choices=("slower", "free"), default="slower")
    parser.add_argument("--move-s", type=float, default=0.0, help="what each start of a job takes")
    parser.add_argument("--rounds", type=int, help="of a batch, 0 for the paper's formula")
    parser.add_argument("--theta", type=float, help="factor on the highest prices")
    parser.add_argument("--horizon-slots", type=int, help="when the clock of batches begins anew")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each policy."""
    chosen = _arguments(arguments)
    spare_lasting_values()  # as `eva simulate` does
    found = Rows(as_json=chosen.json)
    try:
        recipe = WorldRecipe.model_validate(
            {
                "kind": "world",
                "file": chosen.file,
                "jobs": chosen.jobs,
                "values": "convex" if chosen.convex else "linear",
                "spread": chosen.spread,
                "move": f"{round(1000 * chosen.move_s)}ms",
            }
        )
        trace = recipe.trace(0, ())
        given = {
            "recall": chosen.recall,
            "pricing": chosen.pricing,
            "rounds": chosen.rounds,
            "theta_ppm": None if chosen.theta is None else round(MILLION * chosen.theta),
            "horizon_slots": chosen.horizon_slots,
        }
        options = {name: value for name, value in given.items() if value is not None}
        for policy in chosen.policy or POLICIES:
            found.add(simulated(trace, policy, options))
    except EvaError as error:
        print(error.message, file=sys.stderr)
        for problem in getattr(error, "problems", ()):
            print(f"  {chosen.file}: {problem.key}: {problem.message}", file=sys.stderr)
        return 2
    found.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
