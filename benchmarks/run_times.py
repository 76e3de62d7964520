"""How long jobs take whose run times have to be learned, by policy, and how well they are learned.

Run as `python -m benchmarks.run_times FILE [--policy NAME ...] [--json]`, with a trace of past jobs
and jobs to run: as text (`kind: tasks` in experiments), or as JSON if its name does not end like
such a text's. A policy is any that is installed, `NAME` or `NAME:PRESET`. The production control
loop runs on virtual time, on owned servers. Jobs state how long they take, and are believed, under
a preset `oracle` alone, or with `--stated`; what run times are estimated from else is what the
policy asks for.

Errors are those of the mean run time of a job's tasks as the policy was told of it, in per cent,
over jobs of three tasks or more: at its first sight of a job if estimates are from earlier jobs
alone or are stated, else once 3 % of the job's tasks have finished. `right_queue` is the share of
these jobs for which that comes to the right power of ten of their work. `cpu_s` is processor time;
but for that the same arguments give the same figures.

Of DAGs, `dag_error` is the error of the work of a whole DAG before its second stage, at its arrival
if estimates are from earlier jobs alone, and `dag_jct` is the time from its arrival to its end.

A slot is a machine of its own: tasks of different workloads on one machine are assumed to slow each
other down until that is measured, tasks of arrays of traces report nothing to measure it by, and so
their run times would be taken to be shorter than they are.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from eva_lab.experiments.fixed import ClusterSection
from eva_lab.simulator.results.dags import WatchedDags, accuracy_of_dags, completion_ms
from eva_lab.simulator.results.metrics import SimulationOutcome, quantile
from eva_lab.simulator.results.run_times import WatchedEstimates, accuracy
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces.recipes import FileRecipe, TasksRecipe
from eva_lab.traces.tasks import SUFFIXES
from eva_master.adapters.loop.collector import spare_lasting_values
from eva_master.app.policy_registry import policies
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.building import policy_config
from eva_master.app.sections.policies import estimates_of
from eva_master.model.planning.estimate import Estimates
from eva_master.model.trace import Trace
from eva_master.packing.elastic.fixed import built
from eva_wire.values.errors import EvaError

_ORACLE = "oracle"
_PER_CENT = 100
_ROUNDED = 2


def simulated(
    trace: Trace,
    name: str,
    cluster: ClusterSection,
    seed: int,
    *,
    mode: Estimates | None = None,
    stated: bool = False,
) -> dict[str, Any]:
    """Simulate a trace under a policy.

    Args:
        trace: Arrays with a duration of each task, after past jobs.
        name: Of the policy, ``NAME`` or ``NAME:PRESET``.
        cluster: On what it runs.
        seed: Of the policy, if it has one.
        mode: Source of run times, if the policy is not to choose it.
        stated: Whether jobs state how long they take; under a preset `oracle` they always do.

    Raises:
        EvaError: There is no such policy, or the trace cannot end.
    """
    section = OnePolicySection(name=name)
    kind = policies()[section.name]
    stated = stated or section.preset == _ORACLE
    known = {field.name for field in fields(kind.config)}
    options = {key: value for key, value in (("explained", False), ("seed", seed)) if key in known}
    config = policy_config(section.model_copy(update={"options": options}), kind)
    if mode is None:
        mode = estimates_of(kind, config, default=Estimates.OFF if stated else Estimates.POSTERIOR)
    dags = WatchedDags(built(kind, config), trace.jobs)
    policy = WatchedEstimates(dags, trace.jobs)
    setup = Setup(
        trace,
        (),
        policy,
        nodes=cluster.fixed.nodes,
        durations=stated,
        estimates=mode,
        seed=seed,
        keep_record=True,
    )
    gc.collect()
    start = time.thread_time()
    outcome = Simulation(setup).run()
    cpu_s = time.thread_time() - start
    took = sorted(job.jct_ms / 1_000 for job in outcome.record.jobs)
    found = accuracy(policy.decisive(mode, stated=stated), trace.jobs)
    return {
        "policy": name,
        "estimates": "stated" if stated else mode.value,
        "jobs": len(took),
        "jct_mean_s": round(sum(took) / len(took), _ROUNDED),
        "jct_p50_s": round(quantile(took, 0.5), _ROUNDED),
        "jct_p90_s": round(quantile(took, 0.9), _ROUNDED),
        "wide": found.jobs,
        "estimated": found.estimated,
        "error_p50": round(_PER_CENT * found.p50, _ROUNDED) if found.estimated else None,
        "error_p90": round(_PER_CENT * found.p90, _ROUNDED) if found.estimated else None,
        "right_queue": round(_PER_CENT * found.right_queue, _ROUNDED) if found.estimated else None,
        **_of_dags(dags, outcome, trace, mode, stated=stated),
        "rounds": outcome.rounds,
        "cpu_s": round(cpu_s, _ROUNDED),
    }


def _of_dags(
    watched: WatchedDags, outcome: SimulationOutcome, trace: Trace, mode: Estimates, *, stated: bool
) -> dict[str, Any]:
    """The figures of whole DAGs; none if there are no DAGs."""
    found = accuracy_of_dags(watched.decisive(mode, stated=stated), trace.jobs)
    if not found.dags:
        return {}
    took = sorted(it / 1_000 for it in completion_ms(outcome.record.jobs, trace.jobs))
    known = bool(found.estimated)
    return {
        "dags": found.dags,
        "dag_jct_mean_s": round(sum(took) / len(took), _ROUNDED),
        "dag_jct_p90_s": round(quantile(took, 0.9), _ROUNDED),
        "dags_estimated": found.estimated,
        "dag_error_p50": round(_PER_CENT * found.p50, _ROUNDED) if known else None,
        "dag_error_p90": round(_PER_CENT * found.p90, _ROUNDED) if known else None,
    }


def _why_not(name: str) -> str:
    """Why there is no policy of a name; empty if there is one."""
    asked = OnePolicySection(name=name)
    if asked.name not in policies():
        return f"there is no policy {asked.name!r}"
    presets = policies()[asked.name].presets
    if asked.preset is None or asked.preset in presets:
        return ""
    return f"the policy {asked.name!r} has no preset {asked.preset!r}"


def _trace(chosen: argparse.Namespace) -> Trace:
    given = {"file": chosen.file, "jobs": chosen.jobs}
    if chosen.file.name.endswith(SUFFIXES):
        return TasksRecipe(kind="tasks", **given).trace(chosen.seed, ())
    return FileRecipe(kind="file", **given).trace(chosen.seed, ())


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="past jobs and jobs, one a line")
    parser.add_argument("--policy", action="append", help="NAME or NAME:PRESET; by default fifo")
    parser.add_argument("--slots", type=int, default=150, help="tasks that run at a time")
    parser.add_argument("--slots-per-node", type=int, default=1, help="those of one machine")
    parser.add_argument("--jobs", type=int, help="only so many of the jobs to run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--estimates",
        type=Estimates,
        choices=list(Estimates),
        help="what run times are estimated from; by default what the policy asks for",
    )
    parser.add_argument("--stated", action="store_true", help="jobs state how long they take")
    parser.add_argument("--json", action="store_true", help="an object per policy and line")
    return parser.parse_args(arguments)


def _shown(found: Sequence[dict[str, Any]]) -> Table:
    table = Table("", *(one["policy"] for one in found))
    for name in found[0]:
        if name != "policy":
            table.add_row(name, *(str(one[name]) for one in found))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each policy."""
    chosen = _arguments(arguments)
    names = chosen.policy or ["fifo"]
    spare_lasting_values()  # as `eva simulate` does
    found = []
    try:
        if why := next(filter(None, map(_why_not, names)), ""):
            print(why, file=sys.stderr)
            return 2
        cluster = ClusterSection(servers=chosen.slots, slots_per_node=chosen.slots_per_node)
        trace = _trace(chosen)
        for name in names:
            options = {"mode": chosen.estimates, "stated": chosen.stated}
            found.append(simulated(trace, name, cluster, chosen.seed, **options))
            if chosen.json:
                print(json.dumps(found[-1]), flush=True)
    except EvaError as error:
        print(error.message, file=sys.stderr)
        return 2
    if not chosen.json:
        Console().print(_shown(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
