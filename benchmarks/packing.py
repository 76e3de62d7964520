"""The cost of plans compared with the least that any scheduler could pay.

Run as `python -m benchmarks.packing [--input FILE] [--interference FILE] [--patience N]`. Without
an input it makes trials of its own, without interference and with: tasks of the Eva paper's Table
7, and tasks whose sizes are spread like those of a large GPU cluster. Every trial is packed by
Algorithm 1, by the LP tier ("cold"), and by that again with the columns of the first time ("warm").
Costs are prices; with interference the value of the throughput that is lost is added. Times are
processor time of this process, reported and not judged. `--patience N` proves the bound again with
N times as many sets, which shows how much of the distance is due to the bound.

An input is a JSON object with `instance_types` (name, family, gpu, cpu, ram, price) and `trials`, a
list of objects whose `tasks` have a workload and `demands`: GPUs, CPUs and GiB per family. As well
`inputs` will do, with `classes` whose items also have a `count`. An interference file has `default`
and `throughput`, by workload and by neighbour. A file that is wrong is refused with row and field.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.packing_files import Inputs, Pairs, load
from eva_master.learning.colocation import key, observe
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.snapshot import RunView, Snapshot, ThroughputTable
from eva_master.model.resources import Resources
from eva_master.packing.lp.column_generation import EffortLimits
from eva_master.packing.lp.columns import cost
from eva_master.packing.lp.optimizer import Optimizer, Seed, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.column_memory import KEPT
from eva_master.testing.job_views import job_view
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import MILLION, Family, JobId, Millis, Price, Workload, run_id

Amounts = tuple[float, float, float]
"""GPUs, CPUs, GiB."""

TYPES: tuple[tuple[str, str, Amounts, float], ...] = (
    ("p3.2xlarge", "p3", (1, 8, 61), 3.06),
    ("p3.8xlarge", "p3", (4, 32, 244), 12.24),
    ("p3.16xlarge", "p3", (8, 64, 488), 24.48),
    *(
        (f"{family}.{name}", family, (0, cpus, cpus * gib), cpus * usd)
        for family, gib, usd in (("c7i", 2, 0.044625), ("r7i", 8, 0.06615))
        for name, cpus in (
            ("large", 2),
            ("xlarge", 4),
            ("2xlarge", 8),
            ("4xlarge", 16),
            ("8xlarge", 32),
            ("12xlarge", 48),
            ("16xlarge", 64),
            ("24xlarge", 96),
            ("48xlarge", 192),
        )
    ),
)
"""Name, family, vCPUs and memory, dollars per hour on demand."""

TABLE_7: tuple[tuple[str, Amounts, float], ...] = (
    ("resnet18", (1, 8, 24), 8),
    ("vit", (2, 16, 60), 16),
    ("cyclegan", (1, 8, 10), 8),
    ("gpt2", (4, 8, 10), 8),
    ("graphsage", (1, 16, 50), 16),
    ("gcn", (0, 24, 40), 12),
    ("a3c", (0, 20, 8), 8),
    ("diamond", (0, 28, 16), 16),
    ("openfoam", (0, 16, 8), 12),
)
"""Workload, its demand on p3, and its vCPUs elsewhere."""

SPREAD: tuple[tuple[Amounts, int], ...] = (
    ((1, 3.2, 5.5), 20),
    ((1, 4, 15), 7),
    ((1, 4, 22), 4),
    ((1, 6, 12), 3),
    ((1, 6.5, 30), 3),
    ((1, 8, 16), 4),
    ((1, 8, 30), 8),
    ((1, 9.8, 40), 3),
    ((1, 11.3, 48), 10),
    ((1, 11.9, 46), 10),
    ((1, 12, 16), 3),
    ((1, 12, 24), 3),
    ((1, 14.2, 57), 2),
    ((1, 16, 32), 2),
    ((1, 18.7, 63), 3),
    ((2, 16, 64), 1),
    ((4, 32, 128), 1),
    ((8, 60, 400), 1),
    ((0, 1, 2), 1),
    ((0, 4, 0), 1),
    ((0, 8, 30), 3),
    ((0, 12.5, 56), 5),
    ((0, 15.4, 50), 3),
    ((0, 20, 64), 1),
    ((0, 32, 48), 4),
)
"""Sizes of tasks, and how often each is drawn."""

PAIRS: Mapping[str, Mapping[str, float]] = {
    "resnet18": {"gpt2": 0.92, "gcn": 0.84, "resnet18": 0.93},
    "graphsage": {"resnet18": 0.85, "graphsage": 0.89, "gcn": 0.88, "vit": 0.91},
    "cyclegan": {"resnet18": 0.99, "graphsage": 1.0, "gcn": 0.85, "cyclegan": 0.99},
    "gpt2": {"resnet18": 0.79, "cyclegan": 0.79, "gpt2": 0.87, "vit": 0.79, "gcn": 1.0},
    "gcn": {"a3c": 0.65, "gcn": 0.9, "gpt2": 0.98},
    "openfoam": {"resnet18": 0.81, "diamond": 0.83, "vit": 0.81, "openfoam": 0.97},
    "a3c": {"a3c": 0.67, "openfoam": 1.0},
    "vit": {"gcn": 0.84, "graphsage": 1.0, "cyclegan": 1.0, "vit": 0.93},
}
"""Throughput of a workload beside another one; 0.95 where nothing is said."""

ALIASES = {"sage": "graphsage", "seq_diamond": "diamond", "seq": "diamond"}
"""Names that the workloads of inputs go by."""


@dataclass(frozen=True)
class Trial:
    """A trial: the tasks to be packed, with the number of each class."""

    name: str
    catalog: Catalog
    tasks: Mapping[TaskSpec, int]
    reference: float | None = None
    """The best cost that is known, in dollars per hour."""


def offering(name: str, family: str, amounts: Amounts, usd: float) -> Offering:
    """Make an offering without delays."""
    machine = InstanceType(name, Family(family), resources(amounts))
    return Offering(machine, Price(round(usd * MILLION)))


def resources(amounts: Amounts) -> Resources:
    """Convert resources to the scheduler's units."""
    gpus, cpus, gib = amounts
    return Resources(int(gpus), round(cpus * 1000), round(gib * 1024))


def task(workload: str, demands: Mapping[str, Amounts]) -> TaskSpec:
    """A task by its demand per family."""
    needs = sorted((Family(family), resources(amounts)) for family, amounts in demands.items())
    return TaskSpec(Workload(workload), Program("true"), tuple(needs))


def table_7(size: int, seed: int) -> Trial:
    """Tasks drawn evenly from the paper's workloads."""
    choose = random.Random(seed)
    tasks: dict[TaskSpec, int] = {}
    for _ in range(size):
        name, on_p3, cpus = choose.choice(TABLE_7)
        elsewhere = (on_p3[0], cpus, on_p3[2])
        spec = task(name, {"p3": on_p3, "c7i": elsewhere, "r7i": elsewhere})
        tasks[spec] = tasks.get(spec, 0) + 1
    return Trial(f"table-7/{size}/{seed}", tuple(offering(*kind) for kind in TYPES), tasks)


def spread_out(size: int, seed: int, *, distinct: bool = False) -> Trial:
    """Tasks of many sizes; all of them different if asked for."""
    choose = random.Random(seed)
    sizes, weights = zip(*SPREAD, strict=True)
    tasks: dict[TaskSpec, int] = {}
    for _ in range(size):
        gpus, cpus, gib = choose.choices(sizes, weights)[0]
        if distinct:
            cpus, gib = cpus * choose.uniform(0.7, 1.0), gib * choose.uniform(0.7, 1.0)
        name, _, _ = choose.choice(TABLE_7)
        spec = task(name, dict.fromkeys(("p3", "c7i", "r7i"), (gpus, cpus, gib)))
        tasks[spec] = tasks.get(spec, 0) + 1
    name = "distinct" if distinct else "spread"
    return Trial(f"{name}/{size}/{seed}", tuple(offering(*kind) for kind in TYPES), tasks)


def read(path: Path) -> Iterator[Trial]:
    """The trials of an input file.

    Raises:
        InvalidTrace: The file cannot be used.
    """
    inputs = load(path, Inputs)
    catalog = tuple(
        offering(kind.name, kind.family, (kind.gpu, kind.cpu, kind.ram), kind.price)
        for kind in inputs.instance_types
    )
    for number, trial in enumerate(inputs.trials):
        tasks: dict[TaskSpec, int] = {}
        for item in trial.tasks:
            spec = task(item.workload, item.demands)
            tasks[spec] = tasks.get(spec, 0) + item.count
        yield Trial(str(number), catalog, tasks, trial.optimum.best_integer)


def table_of(pairs: Mapping[str, Mapping[str, float | None]], trial: Trial) -> ThroughputTable:
    """The throughput table for the workloads of a trial, whose names may differ a little."""
    known: dict[str, str] = {}
    for name in sorted({str(spec.workload) for spec in trial.tasks}):
        short = name.rstrip("0123456789").rstrip("_-")
        for candidate in (name, ALIASES.get(name), short, ALIASES.get(short)):
            if candidate in pairs and name not in known:
                known[name] = str(candidate)
    learned = ThroughputTable()
    for name, row in known.items():
        for other, column in known.items():
            value = pairs[row].get(column)
            if value is not None:
                entry = key(Workload(name), [Workload(other)])
                learned = observe(learned, entry, round(value * MILLION))
    return learned


def snapshot(trial: Trial, table: ThroughputTable) -> Snapshot:
    """All tasks as jobs of their own that wait in an empty cluster."""
    runs, jobs = [], []
    for spec, count in trial.tasks.items():
        for _ in range(count):
            job = JobId(f"job-{len(jobs):06}")
            run = RunView(run_id(job, 0), job, spec, None, pinned=False, running=False)
            runs.append(run)
            jobs.append(job_view(job, JobKind.GANG, (run.id,), Millis(0), 0))
    return Snapshot(Millis(0), trial.catalog, tuple(jobs), tuple(runs), (), throughput=table)


def patient(times: int) -> EffortLimits:
    """A budget to prove bounds with, not to pack in time."""
    usual = EffortLimits()
    return replace(
        usual,
        iterations=usual.iterations * times,
        class_iterations=usual.class_iterations * times,
        total_nodes=usual.total_nodes * times,
        nodes=usual.nodes * times,
        total_multisets=usual.total_multisets * times,
        multisets=usual.multisets * times,
    )


def measure(
    trial: Trial, interference: Mapping[str, Any] | None, tier: Tier, patience: int = 1
) -> dict[str, Any]:
    """Pack a trial by Algorithm 1, then by the tier, and by that with columns to begin with."""
    valuation, table = Valuation(interference=False), ThroughputTable()
    if interference is not None:
        valuation = Valuation(default_ppm=round(interference["default"] * MILLION))
        table = table_of(interference["throughput"], trial)
    problem = Problem(snapshot(trial, table), valuation)
    counts = problem.counts(problem.class_of)
    supply = {item.id: item.limit for item in problem.offerings}
    packed: dict[str, tuple[float, float]] = {}
    bounds: list[int] = []
    seeds: list[Seed] = []
    duals: Mapping[int, int] = {}
    figures: dict[str, Any] = {}
    for name, how in (("greedy", Tier.GREEDY), ("cold", tier), ("warm", tier)):
        optimizer = Optimizer(problem, how, seeds)
        start = time.process_time()
        sets, left = optimizer.pack(counts, supply)
        taken = time.process_time() - start
        assert not left.any(), "everything can be packed"
        packed[name] = cost(problem, sets) / MILLION / MILLION, round(taken, 4)
        optimizer.recall((), duals)
        bounds.append(optimizer.bound(counts, supply) or 0)
        seeds, duals = optimizer.seeds(KEPT), optimizer.duals
        effort = optimizer.effort
        if name == "cold":
            figures = {
                "lp_iterations": effort.iterations,
                "lp_nodes": effort.nodes,
                "lp_columns": effort.columns,
            }
    if patience > 1:
        prover = Optimizer(problem, tier, seeds, patient(patience))
        prover.recall((), duals)
        bounds.append(prover.bound(counts, supply) or 0)
    alone = sum(problem.classes[number].price for number in problem.class_of.values())
    return {
        "trial": trial.name,
        "tasks": len(problem.class_of),
        "classes": len(problem.classes),
        "cost_usd_per_hour": packed["cold"][0],
        "lower_bound_usd_per_hour": max(bounds) / MILLION / MILLION or None,
        "nopack_usd_per_hour": alone / MILLION,
        "reference_usd_per_hour": trial.reference,
        "optimizer": str(tier),
        "cpu_seconds": packed["cold"][1],
        "interference": interference is not None,
        "greedy_usd_per_hour": packed["greedy"][0],
        "greedy_cpu_seconds": packed["greedy"][1],
        "warm_usd_per_hour": packed["warm"][0],
        "warm_cpu_seconds": packed["warm"][1],
        **figures,
    }


def own_trials(size: int) -> list[Trial]:
    """The built-in trials: small, large, very large, and one in which all tasks differ."""
    return [
        *(table_7(size, seed) for seed in range(3)),
        *(spread_out(size, seed) for seed in range(3)),
        table_7(40 * size, 0),
        spread_out(40 * size, 0),
        table_7(500 * size, 0),
        spread_out(40 * size, 0, distinct=True),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per trial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--input", type=Path, help="trials; its own if not given")
    parser.add_argument("--interference", type=Path, help="throughput of pairs of workloads")
    parser.add_argument("--optimizer", type=Tier, choices=list(Tier), default=Tier.AUTO)
    parser.add_argument("--size", type=int, default=200, help="of its own trials; default: 200")
    parser.add_argument("--json", action="store_true", help="one JSON object per trial")
    parser.add_argument("--patience", type=int, default=1, help="with the bound; default: 1")
    chosen = parser.parse_args(arguments)
    try:
        return _report(chosen)
    except EvaError as error:
        each = [
            f"  {problem.key}: {problem.message}"
            for problem in error.problems[1:] and error.problems
        ]
        print("\n".join([error.message, *each]), file=sys.stderr)
        return 2


def _report(chosen: argparse.Namespace) -> int:
    trials = list(read(chosen.input)) if chosen.input else own_trials(chosen.size)
    cases: list[Mapping[str, Any] | None] = [None]
    if chosen.interference:
        cases = [load(chosen.interference, Pairs).model_dump()]
    elif not chosen.input:
        cases = [None, {"default": 0.95, "throughput": PAIRS}]
    for interference in cases:
        for trial in trials:
            row = measure(trial, interference, chosen.optimizer, chosen.patience)
            print(json.dumps(row) if chosen.json else _line(row), flush=True)
    return 0


def _line(row: Mapping[str, Any]) -> str:
    bound, known = row["lower_bound_usd_per_hour"], row["reference_usd_per_hour"]

    def part(name: str) -> str:
        dollars = row[f"{name}usd_per_hour"]
        seconds = row["cpu_seconds" if name == "cost_" else f"{name}cpu_seconds"]
        return f"{dollars:.2f}{f' {dollars / bound:.5f}' if bound else ''} ({seconds:.3f} s)"

    known_part = f"  of best known {row['cost_usd_per_hour'] / known:.5f}" if known else ""
    return (
        f"{row['trial']:16} {row['tasks']:6} tasks {row['classes']:5} classes"
        f"{' interfering' if row['interference'] else ''}  greedy {part('greedy_')}"
        f"  {row['optimizer']} {part('cost_')}  warm {part('warm_')}"
        f"{known_part}"
    )


if __name__ == "__main__":
    sys.exit(main())
