"""The cost of jobs on spot markets that run dry and come back, beside that on demand.

Run as `python -m benchmarks.spot FILE [...] [--policy NAME] [--offset DURATION] [--json]`, with
scenario files such as benchmarks/spot_markets/west3.yaml. They name a trace of jobs, all of which
may run on spot instances, and a `market` as `eva simulate --market` reads it, or for each zone a
recorded pool that says when a launch would succeed; where neither is an absolute path, files are
looked for below `EVA_TEST_DATA`. Prices of recorded pools are constant parts of those on demand, as
listed in spot/prices.csv: those of the type, or of a type like it. They may also state `policies`,
`offsets`, a `deadline` and `rules`; options override these. The production control loop runs on
virtual time.

A row has `cost_usd`, `on_demand_usd` (no spot instances at all) and `saved`; `interruptions` of
instances, `refused` launches, `moves` per job; `idle_h`, in which all jobs together made no
progress, and of these `wait_h`, in which not all of their tasks ran; `gpu_used`, the part of the
GPU-hours paid for in which tasks ran; `spot_h` and `on_demand_h` of instances; `later` jobs that
took more than 1.25 times as long as alone and ten minutes; the `rule` by which jobs with deadlines
choose (`--rule`), `missed` deadlines, those that jobs miss on demand alone, `late_s_max`, and
how many jobs are `infeasible`: their deadlines could not be kept on demand, so they would be
refused, and run without; `jct_mean_h`, `plan_p99_s`, `wall_s`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import spot_jobs
from benchmarks.harness import Rows
from eva_lab.runs import named_policy
from eva_lab.simulator.cluster.truth import UNDISTURBED, Truth
from eva_lab.simulator.results.market_bound import market_bound
from eva_lab.simulator.results.metrics import DeadlineFigures, SimulationOutcome, usd
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces import read_interference, read_trace
from eva_lab.traces.spot.files import read_market
from eva_master.adapters.catalog import load_catalog
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.policies import spot_choice_by
from eva_master.learning.market.pools import SpotPool
from eva_master.model.catalog import Catalog, Purchase
from eva_master.model.fleet.market import ANY_TYPE, Market, Span
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.trace import SpotUse, Trace, TraceTask
from eva_wire.text.quantities import parse_duration
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, JobId, own_run, run_id

_AMPLE = 100_000
"""A pool that is up has room for so many instances."""
_LIKE = {"c7i": "c5.12xlarge", "r7i": "r4.16xlarge"}
"""Of types whose spot prices are not listed, whose they are taken for."""
_ASSUMED = 0.3
_LATER, _LATER_MS = 1.25, 600_000
_GRACE_MS = 1_800_000
_NO_DEADLINES = DeadlineFigures(jobs=0, missed=0, late_max_h=0.0)


def data(name: str) -> Path:
    """A file by its absolute path, or of the data that `EVA_TEST_DATA` names.

    Raises:
        SystemExit: The name is unknown.
    """
    if Path(name).is_absolute():
        return Path(name)
    folder = os.environ.get("EVA_TEST_DATA")
    if not folder:
        sys.exit("set EVA_TEST_DATA to the folder of traces and spot markets")
    return Path(folder) / name


@dataclass(frozen=True)
class Scenario:
    """A scenario file.

    Attributes:
        name: Of the file.
        trace: The jobs.
        truth: How they slow each other down.
        market: Where they run.
        catalog: Offerings on demand, and those of them that the market sells.
        offsets: Where in the market runs begin.
        policies: Which schedulers are compared.
        deadline: Jobs are due after so many times their time alone, and half an hour; `None` for
            the deadlines of the trace, if it has any.
        rules: How jobs with deadlines choose; `None` for as the policy asks.
    """

    name: str
    trace: Trace
    truth: Truth
    market: Market
    catalog: Catalog
    offsets: tuple[str, ...] = ("0h",)
    policies: tuple[str, ...] = ("eva",)
    deadline: float | None = None
    rules: tuple[SpotChoice | None, ...] = (None,)


def read(path: Path) -> Scenario:
    """Read a scenario and what it names.

    Raises:
        EvaError: A file that it names cannot be read.
    """
    told = yaml.safe_load(path.read_text(encoding="utf-8"))
    catalog = load_catalog()
    slowed = told.get("interference")
    return Scenario(
        path.stem,
        read_trace(data(told["trace"])).using_spot(SpotUse.ALLOWED),
        read_interference(data(slowed)) if slowed else UNDISTURBED,
        read_market(data(told["market"]), catalog)
        if "market" in told
        else _recorded(told, catalog),
        catalog,
        tuple(told.get("offsets", Scenario.offsets)),
        tuple(told.get("policies", Scenario.policies)),
        told.get("deadline"),
        tuple(map(SpotChoice, told["rules"])) if "rules" in told else Scenario.rules,
    )


def _recorded(told: Mapping[str, Any], catalog: Catalog) -> Market:
    """The market of recorded pools."""
    runs = _runs(data(told["runs"]))
    parts = _parts(data("spot/prices.csv"))
    pools: dict[tuple[str, str], tuple[Span, ...]] = {}
    length = min(runs[one["of"]][1] for one in told["pools"])
    for one in told["pools"]:
        for machine in sorted({offering.type.name for offering in catalog}):
            wanted = one.get("type", ANY_TYPE)
            if wanted not in {ANY_TYPE, machine}:
                continue
            part = round(MILLION * _part(parts, machine, one["zone"]))
            spans = tuple(
                Span(start, _AMPLE if up else 0, None, part)
                for start, up in runs[one["of"]][0]
                if start < length
            )
            pools[machine, one["zone"]] = spans
    return Market(pools, length)


@lru_cache(maxsize=1)
def _runs(path: Path) -> Mapping[str, tuple[list[tuple[int, bool]], int]]:
    """Of each recorded pool when it goes up and down, and when it ends, in milliseconds."""
    found: dict[str, tuple[list[tuple[int, bool]], int]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            changes, _ = found.get(row["trace"], ([], 0))
            start, up = 1000 * int(row["start_s"]), int(row["available"]) > 0
            if not changes or changes[-1][1] != up:
                changes.append((start, up))
            found[row["trace"]] = changes, start + 1000 * int(row["length_s"])
    return found


@lru_cache(maxsize=1)
def _parts(path: Path) -> Mapping[tuple[str, str], float]:
    with path.open(encoding="utf-8", newline="") as file:
        return {
            (row["type"], row["zone"]): float(row["spot_usd_h"]) / float(row["on_demand_usd_h"])
            for row in csv.DictReader(file)
            if row["spot_usd_h"]
        }


def _part(parts: Mapping[tuple[str, str], float], machine: str, zone: str) -> float:
    like = _LIKE.get(machine.partition(".")[0], machine)
    return parts.get((machine, zone), parts.get((like, zone), _ASSUMED))


def recordings(told: Mapping[str, Any]) -> dict[str, spot_jobs.Recording]:
    """The sets of pools that a file of single jobs names."""
    runs, parts = _runs(data(told["runs"])), _parts(data("spot/prices.csv"))
    gap_ms, found = round(1_000 * told["gap_s"]), {}
    for name, zones in told["zones"].items():
        spans = [runs[told["of"].format(zone=zone)] for zone in zones]
        samples = min(length for _, length in spans) // gap_ms
        up = np.zeros((len(zones), samples), dtype=bool)
        for row, (changes, _) in zip(up, spans, strict=True):
            for start, there in changes:
                row[start // gap_ms :] = there
        prices = tuple(_part(parts, told["type"], zone) for zone in zones)
        pools = tuple(SpotPool(told["type"], zone) for zone in zones)
        found[name] = spot_jobs.Recording(pools, prices, gap_ms, up)
    return found


def prepared(
    scenario: Scenario,
    policy: str,
    market: Market | None,
    rule: SpotChoice = SpotChoice.LEARNED,
) -> Simulation:
    """The simulation of a scenario; `None` for no spot instances at all."""
    chosen, gap = named_policy(policy, {"explained": False})
    catalog = scenario.catalog if market is None else market.offered(scenario.catalog)
    setup = Setup(
        scenario.trace,
        catalog,
        chosen,
        truth=scenario.truth,
        round_gap_s=gap,
        market=market,
        spot_choice=rule,
        keep_record=True,
        stopwatch=time.process_time,
    )
    return Simulation(setup)


def due(trace: Trace, factor: float) -> Trace:
    """The jobs with deadlines: so many times their time alone, and half an hour."""
    jobs = (
        replace(job, within_ms=round(factor * job.duration_ms) + _GRACE_MS) for job in trace.jobs
    )
    return replace(trace, jobs=tuple(jobs))


def without_infeasible(scenario: Scenario, policy: str) -> tuple[Scenario, int]:
    """A scenario without the deadlines that cannot be kept on demand, and how many these are."""
    names = prepared(scenario, policy, None).infeasible()
    jobs = (replace(job, within_ms=None) if job.id in names else job for job in scenario.trace.jobs)
    return replace(scenario, trace=replace(scenario.trace, jobs=tuple(jobs))), len(names)


def row(
    scenario: Scenario, policy: str, rule: SpotChoice, offset: str, on_demand: Simulation
) -> dict[str, Any]:
    """The figures of one run, and some of one without spot instances."""
    on_demand_usd = on_demand.outcome().cost_usd
    market = scenario.market.began_at(parse_duration(offset))
    sold = market.offered(scenario.catalog)
    start, simulation = time.perf_counter(), prepared(scenario, policy, market, rule)
    simulation.run()
    wall_s = time.perf_counter() - start
    outcome, hours = simulation.outcome(), dict.fromkeys(Purchase, 0.0)
    for machine in simulation.cluster.cloud.bill().values():
        if machine.up_ms is not None and machine.gone_ms is not None:
            hours[machine.offering.purchase] += (machine.gone_ms - machine.up_ms) / MILLIS_PER_HOUR
    assert simulation.market is not None
    jobs = outcome.record.jobs
    return {
        "scenario": scenario.name,
        "policy": policy,
        "offset": offset,
        "cost_usd": round(outcome.cost_usd, 2),
        "on_demand_usd": round(on_demand_usd, 2),
        "bound_usd": round(usd(market_bound(scenario.trace, sold, market)), 2),
        "saved": round(1 - outcome.cost_usd / on_demand_usd, 4),
        "interruptions": simulation.market.interrupted,
        "refused": simulation.market.refused,
        "moves": round(outcome.migrations_per_job, 2),
        "idle_h": round(outcome.idle_mean_h * len(scenario.trace.jobs), 1),
        "wait_h": round(sum(job.jct_ms - job.executing_ms for job in jobs) / MILLIS_PER_HOUR, 1),
        "gpu_used": round(_gpu_used(scenario, simulation), 3),
        "spot_h": round(hours[Purchase.SPOT], 1),
        "on_demand_h": round(hours[Purchase.ON_DEMAND], 1),
        "later": sum(_is_later(scenario, simulation)),
        **_missed(outcome, on_demand.outcome(), rule),
        "jct_mean_h": round(outcome.jct_mean_h, 3),
        "plan_p99_s": round(outcome.planning.p99_s, 4),
        "wall_s": round(wall_s, 1),
    }


def _gpu_used(scenario: Scenario, simulation: Simulation) -> float:
    """The part of the GPU-hours that were paid for in which a task ran."""
    record = simulation.outcome().record
    gpus = {offering.type.name: offering.type.capacity.gpus for offering in scenario.catalog}
    paid = sum(
        gpus[instance.type] * (instance.gone_ms - instance.up_ms) for instance in record.instances
    )
    tasks = {job.id: job.tasks for job in scenario.trace.jobs}
    needs = {
        run_id(JobId(job.id), index): max(_gpus_of(task))
        for job in record.jobs
        for index, task in enumerate(tasks[job.name])
    }
    used = sum(
        needs[own_run(occupancy.run)] * occupancy.executing_ms for occupancy in record.occupancies
    )
    return used / paid if paid else 0.0


def _gpus_of(task: TraceTask) -> Iterator[int]:
    yield 0 if task.demand is None else task.demand.gpus
    yield from (need.gpus for _, need in task.demand_by_family if need is not None)


def _asked_by(policy: str) -> SpotChoice:
    return spot_choice_by(OnePolicySection(name=policy)) or SpotChoice.LEARNED


def _missed(
    outcome: SimulationOutcome, on_demand: SimulationOutcome, rule: SpotChoice
) -> dict[str, Any]:
    """Deadlines that are missed, and those that are without spot instances."""
    with_spot = outcome.deadlines or _NO_DEADLINES
    return {
        "rule": rule.value,
        "missed": with_spot.missed,
        "missed_on_demand": (on_demand.deadlines or _NO_DEADLINES).missed,
        "late_s_max": round(3_600 * with_spot.late_max_h),
    }


def _is_later(scenario: Scenario, simulation: Simulation) -> Iterator[bool]:
    alone = {job.id: job.duration_ms for job in scenario.trace.jobs}
    for job in simulation.outcome().record.jobs:
        took = job.finished_ms - job.submitted_ms
        yield took > _LATER * alone[job.name] + _LATER_MS


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each scenario, policy and offset; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--policy", action="append")
    parser.add_argument("--offset", action="append", help="in place of those of the file")
    parser.add_argument(
        "--deadline",
        type=float,
        metavar="FACTOR",
        help="have all jobs done within so many times their time alone, and half an hour",
    )
    parser.add_argument(
        "--rule", type=SpotChoice, action="append", help="how jobs with deadlines choose"
    )
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    rows = Rows(as_json=chosen.json)
    try:
        _measure(chosen, rows)
    except EvaError as error:
        print(error.message, file=sys.stderr)
        return 2
    rows.show()
    return 0


def _measure(chosen: argparse.Namespace, rows: Rows) -> None:
    for path in chosen.files:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "hours" in document:
            for one in spot_jobs.rows(recordings(document), document):
                rows.add(one)
            continue
        scenario = read(path)
        factor = scenario.deadline if chosen.deadline is None else chosen.deadline
        if factor is not None:
            scenario = replace(scenario, trace=due(scenario.trace, factor))
        for policy in chosen.policy or scenario.policies:
            feasible, infeasible = without_infeasible(scenario, policy)
            on_demand = prepared(feasible, policy, None)
            on_demand.run()
            rules = chosen.rule or scenario.rules
            for offset, asked in itertools.product(chosen.offset or scenario.offsets, rules):
                rule = asked or _asked_by(policy)
                found = row(feasible, policy, rule, offset, on_demand)
                rows.add(found | {"infeasible": infeasible})


if __name__ == "__main__":
    sys.exit(main())
