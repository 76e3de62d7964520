"""Counts of three fixed runs, which no noise can move: the effect of a change on plans and costs.

Run as `python -m benchmarks.counts [--write] [--json]`. Each run is a small trace on the production
loop with virtual time:

- `batch`: the first jobs of examples/traces/production.jsonl under `eva`, gangs among them;
- `spot`: later short jobs of it, half of them with deadlines, on a spot market that comes and goes
  (counted/market.csv), under `eva`;
- `fleet`: training jobs on own nodes of three GPU types (counted/fleet.csv), under `hadar`.

A count is the same on every machine. counted/counts.json has the counts of this commit;
tests/simulation/test_counts.py compares, and shows each difference. A commit that changes a count
on purpose says so by `--write`. `cost_micro_usd`, `jct_ms` (the sum over all jobs), `launched` and
`moves` are results of the plans. `plans`, `snapshots` (built from the state, for plans and
for all else), `views` (made anew for them), `events` and `steps` are the loop's. `trials`, `loads`,
`lp_columns`, `lp_nodes` and `work_us` are the searches' of the policy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

from benchmarks.harness import ROOT, Rows
from benchmarks.spot import due
from eva_lab.experiments.fleet import ServersSection, awaited, nodes_of
from eva_lab.runs import named_policy
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces import measured_interference, read_trace
from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_lab.traces.spot.files import read_market
from eva_master.adapters.catalog import load_catalog
from eva_master.control.planning import snapshot_builder
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import SpotUse
from eva_master.ports import Policy
from eva_wire.values.ids import Millis

FOLDER = Path(__file__).parent / "counted"
FILE = FOLDER / "counts.json"
_BATCH_JOBS = 14
_SPOT_FROM, _SPOT_JOBS, _SPOT_LONGEST_MS = 25, 10, 60_000_000
_ROUND_GAP_MS = 360_000
_SUMMED = {
    "iterations": "trials",
    "loads": "loads",
    "lp_columns": "lp_columns",
    "lp_nodes": "lp_nodes",
    "work_us": "work_us",
}
"""Figures of a plan, and the counts that they are summed in."""

Counts = dict[str, int]


@dataclass
class CountingPolicy:
    """Wraps a policy and sums the figures of its plans.

    Attributes:
        policy: The policy that decides.
        counts: The sums, and the number of plans.
    """

    policy: Policy
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """Name of the policy that decides."""
        return self.policy.name

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy.plan`."""
        plan, memory = self.policy.plan(snapshot, memory)
        self.counts["plans"] += 1
        for figure, name in _SUMMED.items():
            self.counts[name] += int(plan.figures.get(figure, 0))
        return plan, memory


def batch() -> Setup:
    """Jobs without deadlines on instances on demand, which slow each other down."""
    trace = read_trace(ROOT / "examples/traces/production.jsonl")
    policy, gap = named_policy("eva")
    return Setup(
        replace(trace, jobs=trace.jobs[:_BATCH_JOBS]),
        load_catalog(),
        policy,
        truth=measured_interference(),
        round_gap_s=gap,
    )


def spot() -> Setup:
    """Jobs and gangs that may run on spot instances; every other one has a deadline."""
    trace = read_trace(ROOT / "examples/traces/production.jsonl").using_spot(SpotUse.ALLOWED)
    short = [job for job in trace.jobs[_SPOT_FROM:] if job.duration_ms < _SPOT_LONGEST_MS]
    jobs = tuple(short[:_SPOT_JOBS])
    start = jobs[0].arrival_ms
    jobs = tuple(replace(job, arrival_ms=Millis(job.arrival_ms - start)) for job in jobs)
    dated = due(replace(trace, jobs=jobs), 1.5).jobs
    jobs = (*dated[::2], *jobs[1::2])
    catalog = load_catalog()
    market = read_market(FOLDER / "market.csv", catalog)
    policy, gap = named_policy("eva")
    return Setup(
        replace(trace, jobs=jobs),
        market.offered(catalog),
        policy,
        truth=measured_interference(),
        round_gap_s=gap,
        market=market,
    )


def fleet() -> Setup:
    """Training jobs of one to eight GPUs on owned servers of three GPU types."""
    recipe = GpusRecipe.model_validate({"kind": "gpus", "file": FOLDER / "fleet.csv"})
    policy, _ = named_policy("hadar")
    servers = ServersSection(servers=2, gpus=4)
    return Setup(
        awaited(recipe.trace(0, ()), _ROUND_GAP_MS),
        (),
        policy,
        nodes=nodes_of(dict.fromkeys(("v100", "p100", "k80"), servers)),
        round_gap_ms=_ROUND_GAP_MS,
    )


RUNS: Mapping[str, Callable[[], Setup]] = {"batch": batch, "spot": spot, "fleet": fleet}


def counted(setup: Setup) -> Counts:
    """Simulate a run and count."""
    policy = CountingPolicy(setup.policy)
    counts = policy.counts
    with _snapshots_counted(counts):
        simulation = Simulation(replace(setup, policy=policy, keep_record=True))
        outcome = simulation.run()
    jobs = outcome.record.jobs
    return {
        "cost_micro_usd": round(1_000_000 * outcome.cost_usd),
        "jct_ms": sum(job.jct_ms for job in jobs),
        "launched": outcome.instances_launched,
        "moves": round(outcome.migrations_per_job * len(jobs)),
        "events": outcome.events,
        "steps": outcome.steps,
        "views": simulation.cluster.state.view_cache.made,
        **{name: counts[name] for name in ("plans", "snapshots", *_SUMMED.values())},
    }


@contextmanager
def _snapshots_counted(counts: Counter[str]) -> Iterator[None]:
    """Count the calls of the one function that builds snapshots, by whatever module."""
    build = snapshot_builder.snapshot

    def counting(*arguments: object, **named: object) -> Snapshot:
        counts["snapshots"] += 1
        return build(*arguments, **named)  # type: ignore[arg-type]

    with ExitStack() as stack:
        for module in list(sys.modules.values()):
            if vars(module).get("snapshot") is build:
                stack.enter_context(patch.object(module, "snapshot", counting))
        yield


def stored() -> dict[str, Counts]:
    """The counts that the file says."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def write(counts: Mapping[str, Counts]) -> None:
    """Put counts into the file."""
    FILE.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")


def table(before: Mapping[str, Counts], after: Mapping[str, Counts]) -> str:
    """The counts that differ between two sets, a line each; empty if none does."""
    lines = []
    for run in {**before, **after}:
        old, new = before.get(run, {}), after.get(run, {})
        for name in {**old, **new}:
            was, now = old.get(name), new.get(name)
            if was != now:
                change = f"{100 * (now / was - 1):+.2f} %" if was and now is not None else ""
                lines.append(f"{run:8} {name:16} {_shown(was):>16} {_shown(now):>16} {change:>12}")
    head = f"{'run':8} {'count':16} {'before':>16} {'now':>16} {'change':>12}"
    return "\n".join([head, *lines]) if lines else ""


def _shown(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts, or write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"put them into {FILE.name}")
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    chosen = parser.parse_args(arguments)
    counts = {run: counted(setup()) for run, setup in RUNS.items()}
    if chosen.write:
        print(table(stored() if FILE.exists() else {}, counts) or "Nothing has changed.")
        write(counts)
        return 0
    rows = Rows(as_json=chosen.json)
    for run, figures in counts.items():
        rows.add({"run": run, **figures})
    rows.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
