"""What forks gain: mixes of 1 to 12 training jobs on five nodes, by policy, with forks and without.

Run as `python -m benchmarks.forks [--policy NAME[:PRESET] ...] [--merge-s S ...] [--every-s S]
[--round-s S] [--json]`. The fleet is that of the experiment of Hadar's authors on AWS: one node
with a V100, two with a K80 and two with a T4. So are the mixes. How long jobs take they do not say:
15 to 30 minutes on the type that suits each best is a guess. The speeds on the types are those that
Gavel's authors measured of such models, with their P100 in place of the T4.

Each policy runs every mix once without forks and once per cost of a merge with as many forks as
there are nodes. `total_s` is the time from the first submission to the last end, `mean_s` that of a
job, `used` the share of the nodes' time in which a program trained. Times are simulated; the same
arguments give the same figures.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console
from rich.table import Table

from eva_master.app.simulate import named_policy
from eva_master.control.settings import Settings
from eva_master.model.forks.merging import MergeRule
from eva_master.model.ids import Family, RunId, Workload
from eva_master.model.job import JobKind, JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.trace import GPU_SLOT
from eva_master.simulation.cluster.attempt_log import RunMetrics
from eva_master.simulation.cluster.delays import Delays
from eva_master.simulation.cluster.work import Work
from eva_master.simulation.scenario.fleet import Servers, fleet_nodes
from eva_master.simulation.simulated_cluster import SimulatedCluster

_STEPS_PER_S = 10
"""On the type that suits a model best."""
_MOVE_MS = 10_000
_LONGEST_MS = 30 * 86_400_000
TYPES = ("v100", "k80", "k80", "t4", "t4")
"""One node each."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is trained.

    Attributes:
        minutes: How long that takes on the type that suits it best.
        speeds: How fast it is on each type, against that one.
    """

    minutes: int
    speeds: tuple[tuple[str, float], ...]


MODELS = {
    "IC": Model(15, (("k80", 0.10), ("t4", 0.65), ("v100", 1.0))),
    "LM": Model(20, (("k80", 0.26), ("t4", 0.90), ("v100", 1.0))),
    "LT": Model(25, (("k80", 0.20), ("t4", 0.59), ("v100", 1.0))),
    "RS": Model(15, (("k80", 0.65), ("t4", 1.0), ("v100", 0.43))),
    "MM": Model(30, (("k80", 0.18), ("t4", 0.56), ("v100", 1.0))),
}
MIXES: dict[str, tuple[str, ...]] = {
    "M-1": ("MM",),
    "M-3": ("LT", "MM", "MM"),
    "M-4": ("IC", "LM", "LT", "MM"),
    "M-5": ("IC", "LM", "LT", "RS", "MM"),
    **{f"M-{n}": ("IC", "LM", "LT", "RS", *["MM"] * (n - 4)) for n in (8, 10, 12)},
}


def _spec(number: int, name: str, forks: int, every_ms: int) -> JobSpec:
    model = MODELS[name]
    need = Resources(1, GPU_SLOT.milli_cpus, GPU_SLOT.memory_mib)
    task = TaskSpec(
        Workload(name),
        Program("true"),
        tuple((Family(it), need) for it, _ in model.speeds),
        tuple((Family(it), round(_STEPS_PER_S * speed * 1e6)) for it, speed in model.speeds),
    )
    return JobSpec(
        f"{name.lower()}-{number}",
        "benchmark",
        (task,),
        kind=JobKind.ARRAY if forks > 1 else JobKind.GANG,
        total_steps=model.minutes * 60 * _STEPS_PER_S,
        duration_ms=model.minutes * 60_000,
        checkpoint_ms=0,
        launch_ms=_MOVE_MS,
        forks=forks,
        merge=MergeRule(every_ms=every_ms),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """How a mix is run.

    Attributes:
        forks: Of each job at most.
        merge_ms: What a merge takes.
        every_ms: From one merge to the next.
        round_ms: From one plan to the next at least.
    """

    policy: str
    forks: int
    merge_ms: int
    every_ms: int
    round_ms: int


def run(mix: Sequence[str], case: Case) -> dict[str, float]:
    """Run a mix to its end; returns its figures."""
    servers = [Servers(Family(it), TYPES.count(it), 1) for it in dict.fromkeys(TYPES)]
    nodes = {it.name: it for it in fleet_nodes(servers)}
    metrics = RunMetrics(occupancies=[])
    speeds = {name: dict(model.speeds) for name, model in MODELS.items()}

    def model_of(run: RunId) -> str:
        return run.partition("-")[0].upper()

    cluster = SimulatedCluster(
        (),
        named_policy(case.policy, {})[0],
        settings=Settings(nodes=nodes, round_gap_ms=case.round_ms),
        delays=Delays(fetch_ms=0, start_ms=_MOVE_MS, stop_ms=0, report_ms=10_000),
        # A fork is told when to stop; it would have work for longer.
        work_of=lambda run: Work(
            MODELS[model_of(run)].minutes * 60_000.0 * (1 if case.forks == 1 else 1_000),
            steps_per_s=float(_STEPS_PER_S),
            tells_total=case.forks == 1,
        ),
        speed_of=lambda run, family: speeds[model_of(run)][family],
        attempt_log=metrics,
        latency_ms=0,
        merge_ms=case.merge_ms,
    )
    cluster.run(lambda: cluster.timeline.now() > 2 * case.round_ms)  # all nodes are there
    for number, name in enumerate(mix, 1):
        cluster.submit(_spec(number, name, case.forks, case.every_ms))
    if not cluster.run(cluster.quiet, limit_ms=_LONGEST_MS):
        raise RuntimeError(f"{case}: the jobs do not end")
    jobs = list(cluster.state.jobs.values())
    began = min(job.submitted_ms for job in jobs)
    ended = [job.finished_ms for job in jobs if job.finished_ms is not None]
    trained = sum(it.moving_ms for it in metrics.occupancies or ())
    total_ms = max(ended) - began
    return {
        "total_s": round(total_ms / 1000),
        "mean_s": round(fmean(it - began for it in ended) / 1000),
        "used": round(trained / (total_ms * len(TYPES)), 3),
    }


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", action="append", help="by default fifo")
    parser.add_argument(
        "--merge-s", type=float, action="append", help="by default 0, 10, 20, 40, 80"
    )
    parser.add_argument("--every-s", type=float, default=360.0, help="from one merge to the next")
    parser.add_argument("--round-s", type=float, default=360.0, help="from one plan to the next")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each policy and mix."""
    chosen = _arguments(arguments)
    costs = chosen.merge_s or [0, 10, 20, 40, 80]
    every_ms, round_ms = round(1000 * chosen.every_s), round(1000 * chosen.round_s)
    rows = []
    for policy in chosen.policy or ["fifo"]:
        for cost in [None, *costs]:
            forks, merge_ms = (1, 0) if cost is None else (len(TYPES), round(1000 * cost))
            case = Case(policy, forks, merge_ms, every_ms, round_ms)
            for mix, names in MIXES.items():
                told = {"policy": policy, "forks": forks, "merge_s": cost, "mix": mix}
                rows.append({**told, **run(names, case)})
                if chosen.json:
                    print(json.dumps(rows[-1]), flush=True)
    if not chosen.json:
        table = Table(*rows[0])
        for row in rows:
            table.add_row(*map(str, row.values()))
        Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
