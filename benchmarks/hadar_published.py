"""Results of Hadar as published: its readings, one round's optimum, the time of a decision.

Run as `python -m benchmarks.hadar_published readings FILE [--set OPTION=VALUE ...]`, with a CSV
file of jobs as of `benchmarks.fleet`: hours in total, until the mean job and until half of the jobs
have ended, on the production control loop. `--shuffle SEED` draws the order of the queue,
`--hours-of TYPE` takes the file's GPU-hours for those of a type, and `--policy` names another
policy.

`optimum FILE` compares the first round with the exact optimum of its own objective, which is the
sum of utilities, by branches kept and by order of the queue.

`decisions FILE` measures the processor time of a call of the policy for 32 to 2,048 jobs that all
wait for a fleet that grows with them, and of the call a round later.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

from eva_lab.experiments.fleet import ServersSection, awaited, fleet_figures, nodes_of
from eva_lab.runs import named_policy
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces.fleets.gpu_jobs import GpuJob, read_gpu_jobs
from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.model.catalog import Purchase
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import Trace
from eva_master.testing.snapshots import Cluster, carried_out, offer, task
from eva_policies.hadar_published.branches import Refused, allocate
from eva_policies.hadar_published.find_alloc import Allocator, Candidate
from eva_policies.hadar_published.prices import extremes, price_ranges
from eva_policies.hadar_published.requests import GpuRequest, Utility, weight, worth
from eva_policies.hadar_published.servers import Kind, Server, free_of, kinds
from eva_wire.text.yamlfile import scalar
from eva_wire.values.ids import MILLIS_PER_HOUR, Family
from tests.fakes.fleets.exact_round import Gang, most_utility

_TYPES = ("v100", "p100", "k80")
_HORIZON_S = 360_000.0


def reading(file: Path, options: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Simulate a file of jobs under the policy with some options."""
    published = arguments.policy == "hadar_published"
    counts = "iterations" if published else "work"
    recipe = GpusRecipe.model_validate(
        {"kind": "gpus", "file": file, "move": "10s", "counts": counts}
    )
    trace = recipe.trace(0, ())
    if arguments.hours_of is not None:
        trace = _of_hours(trace, file, arguments.hours_of)
    trace = _shuffled(trace, arguments.shuffle)
    types = [str(family) for family, _ in read_gpu_jobs(file)[0].rates]
    fleet = {name: ServersSection(servers=5, gpus=4) for name in types}
    gap_ms = 1_000 * arguments.round_s
    policy, _ = named_policy(arguments.policy, {"explained": False, **options})
    setup = Setup(
        awaited(trace, gap_ms),
        (),
        policy,
        nodes=nodes_of(fleet),
        round_gap_ms=gap_ms,
        keep_record=True,
    )
    outcome = Simulation(setup).run()
    found = fleet_figures(outcome, trace, fleet)
    times = [job.jct_ms / MILLIS_PER_HOUR for job in outcome.record.jobs]
    return {
        "file": file.stem,
        **options,
        "bound_h": round(found["bound_h"], 2),
        "total_h": round(found["total_h"], 2),
        "mean_h": round(found["mean_h"], 2),
        "median_h": round(median(times), 2),
        "moves_per_job": round(found["moves_per_job"], 2),
    }


def _shuffled(trace: Trace, seed: int | None) -> Trace:
    """The jobs under names whose order is drawn."""
    if seed is None:
        return trace
    numbers = list(range(len(trace.jobs)))
    random.Random(seed).shuffle(numbers)
    jobs = [replace(job, id=f"{n:05}") for job, n in zip(trace.jobs, numbers, strict=True)]
    return replace(trace, jobs=tuple(sorted(jobs, key=lambda job: job.id)))


def _of_hours(trace: Trace, file: Path, family: str) -> Trace:
    """The jobs with the work that a GPU of a type does in the hours that the file states."""
    with file.open() as lines:
        rows = {row["job"]: row for row in csv.DictReader(lines)}
    jobs = []
    for job in trace.jobs:
        row = rows[job.id]
        steps = max(1, round(3600 * float(row["gpu_hours"]) * float(row[family]) / len(job.tasks)))
        duration_ms = max(1, round(1e9 * steps / job.steps_per_s))
        jobs.append(replace(job, total_steps=steps, duration_ms=duration_ms))
    return replace(trace, jobs=tuple(jobs))


# -- one round -------------------------------------------------------------------------------------


def shares_of_optimum(file: Path) -> Iterator[dict[str, Any]]:
    """The first round's share of the most utility."""
    asks = [_ask(job) for job in read_gpu_jobs(file)]
    types = sorted(asks[0].rates)
    servers = [Server(f"{type_}-{n}", Kind(type_, 4), 4) for type_ in types for n in range(5)]
    gangs = [
        Gang(
            ask.tasks,
            {str(it): _gain(ask, rate) for it, rate in ask.rates.items()},
            {str(it): rate for it, rate in ask.rates.items()},
        )
        for ask in asks
    ]
    most = most_utility(gangs, {str(type_): 20 for type_ in types})
    prices = price_ranges(
        extremes(asks, Utility.THROUGHPUT, _HORIZON_S), dict.fromkeys(types, 20), None
    )
    by_utility = sorted(asks, key=lambda it: -_gain(it, max(it.rates.values())) / it.tasks)
    for order, queue in (("arrival", asks), ("utility", by_utility)):
        for branches in (1, 4, 64):
            known = kinds(servers)
            allocator = Allocator(known, prices, Utility.THROUGHPUT, 100_000, Candidate.PAYOFF)
            given = allocate(queue, allocator, free_of(servers, known), branches, Refused.WAITS)
            earned = sum(_gain(it.ask, it.allocation.rate) for it in given)
            yield {
                "file": file.stem,
                "order": order,
                "branches": branches,
                "share": round(earned / most, 3),
            }


def _ask(job: GpuJob) -> GpuRequest:
    rates = dict(job.rates)
    return GpuRequest(
        job.name, job.gpus, job.iterations, job.iterations, rates, dict.fromkeys(rates, 1)
    )


def _gain(ask: GpuRequest, rate: float) -> float:
    return worth(weight(ask, Utility.THROUGHPUT), ask.ends_s(rate))


# -- decisions -------------------------------------------------------------------------------------


def decisions(file: Path, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The time of a decision by the number of jobs, on 63 servers at most."""
    for number in (32, 64, 128, 256, 512, 1024, 2048):
        servers = 3 * max(1, round(number * 21 / 2048))
        jobs = list(islice(cycle(read_gpu_jobs(file)), number))
        snapshot = _waiting(jobs, servers)
        policy, _ = named_policy("hadar_published", {"explained": False, **options})
        times, memory = [], None
        for _ in range(3):
            start = time.thread_time()
            plan, memory = policy.plan(snapshot, memory)
            times.append(time.thread_time() - start)
            snapshot = replace(carried_out(snapshot, plan), now_ms=snapshot.now_ms + 360_000)
        yield {
            "jobs": number,
            "servers": servers,
            "first_s": round(times[0], 3),
            "next_s": round(times[2], 3),
        }


def _waiting(jobs: Sequence[GpuJob], servers: int) -> Snapshot:
    """Jobs that all wait, and an empty fleet."""
    offers = [
        replace(offer(name, (4, 4, 4), 1, family=name), purchase=Purchase.OWNED) for name in _TYPES
    ]
    cluster = Cluster(*offers)
    for number in range(servers):
        cluster.instance(f"{number:04}", _TYPES[number % len(_TYPES)])
    slots: dict[str, tuple[int, float, float]] = dict.fromkeys(_TYPES, (1, 1, 1))
    for number, job in enumerate(jobs):
        rates = tuple(sorted((Family(it), round(1e6 * rate)) for it, rate in job.rates))
        one = replace(task(job.workload, **slots), throughput=rates)
        fastest = max(rate for _, rate in job.rates)
        left_s = max(1, round(job.iterations / job.gpus / fastest))
        cluster.job(f"j{number:05}", *[one] * job.gpus, left_s=left_s)
    return cluster.snapshot()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print an object per line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("readings", "optimum", "decisions"))
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--set", action="append", default=[], help="OPTION=VALUE of the policy")
    parser.add_argument("--round-s", type=int, default=360)
    parser.add_argument("--shuffle", type=int, help="a seed")
    parser.add_argument("--hours-of", help="a GPU type")
    parser.add_argument("--policy", default="hadar_published")
    chosen = parser.parse_args(arguments)
    spare_lasting_values()
    options = {key: scalar(value) for key, _, value in (it.partition("=") for it in chosen.set)}
    for file in chosen.file:
        match chosen.what:
            case "readings":
                found: Iterator[dict[str, Any]] = iter([reading(file, options, chosen)])
            case "optimum":
                found = shares_of_optimum(file)
            case _:
                found = decisions(file, options)
        for one in found:
            print(json.dumps(one), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
