"""The gain of forks: mixes of 1 to 12 jobs on five nodes, by policy, with forks and without.

Run as `python -m benchmarks.forks [--cluster aws|lab] [--policy NAME[:PRESET] ...] [--merge-s S
...] [--every-s S] [--round-s S] [--slot-s S ...] [--json]`. The clusters are those of the
experiments of Hadar's authors: on AWS one node with a V100, two with a K80 and two with a T4; in
their lab one each with a Titan RTX, T4, T400, RTX 3090 and RTX A2000. So are the mixes. How long
jobs take they do not say: 15 to 30 minutes on the type that suits each best is a guess. The speeds
on AWS are those that Gavel's authors measured of such models, with their P100 in place of the T4.
Speeds in the lab are a guess, too: in proportion to the bandwidth of each GPU's memory.

Each policy runs every mix once without forks and once per cost of a merge with as many forks as
there are nodes. A slot is all of these: from one plan to the next at least, from one merge to the
next, and for how long a place is kept, but for a minute. `total_s` is the time from the first
submission to the last end, `mean_s` that of a job, `first_s` until the first job has ended, `used`
the share of the nodes' time in which a program trained. Times are simulated; the same arguments
give the same figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.harness import Rows
from benchmarks.slots import Slot
from eva_lab.simulator.cluster.attempt_log import RunMetrics
from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.scenario.fleet import Servers, fleet_nodes
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.sections.base import OnePolicySection
from eva_master.app.sections.policies import forking_by
from eva_master.control.settings import Settings
from eva_master.model.fleet.forking import Forking
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.forks.merging import MergeRule
from eva_master.model.job import ForkRules, JobSpec, Program, Restarts, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.trace import GPU_SLOT
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, RunId, Workload

_STEPS_PER_S = 10
"""On the type that suits a model best."""
_MOVE_MS = 10_000
_LONGEST_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes with a GPU each, and how fast models are trained there.

    Attributes:
        types: Of the nodes.
        speeds: By model how fast it is on each type, against the type that suits it best.
    """

    types: tuple[str, ...]
    speeds: Mapping[str, Mapping[str, float]]


MINUTES = {"IC": 15, "LM": 20, "LT": 25, "RS": 15, "MM": 30}
"""How long it takes to train each model on the type that suits it best."""
_LAB_GB_PER_S = {"titan-rtx": 672, "t4": 320, "t400": 80, "rtx-3090": 936, "rtx-a2000": 288}
CLUSTERS = {
    "aws": Cluster(
        ("v100", "k80", "k80", "t4", "t4"),
        {
            "IC": {"k80": 0.10, "t4": 0.65, "v100": 1.0},
            "LM": {"k80": 0.26, "t4": 0.90, "v100": 1.0},
            "LT": {"k80": 0.20, "t4": 0.59, "v100": 1.0},
            "RS": {"k80": 0.65, "t4": 1.0, "v100": 0.43},
            "MM": {"k80": 0.18, "t4": 0.56, "v100": 1.0},
        },
    ),
    "lab": Cluster(
        tuple(_LAB_GB_PER_S),
        {
            model: {it: each / 936 for it, each in sorted(_LAB_GB_PER_S.items())}
            for model in MINUTES
        },
    ),
}
MIXES: dict[str, tuple[str, ...]] = {
    "M-1": ("MM",),
    "M-3": ("LT", "MM", "MM"),
    "M-4": ("IC", "LM", "LT", "MM"),
    "M-5": ("IC", "LM", "LT", "RS", "MM"),
    **{f"M-{n}": ("IC", "LM", "LT", "RS", *["MM"] * (n - 4)) for n in (8, 10, 12)},
}


def _spec(number: int, name: str, case: Case) -> JobSpec:
    speeds = CLUSTERS[case.cluster].speeds[name]
    need = Resources(1, GPU_SLOT.milli_cpus, GPU_SLOT.memory_mib)
    task = TaskSpec(
        Workload(name),
        Program("true"),
        tuple((Family(it), need) for it in speeds),
        tuple((Family(it), round(_STEPS_PER_S * speed * 1e6)) for it, speed in speeds.items()),
    )
    return JobSpec(
        f"{name.lower()}-{number}",
        "benchmark",
        (task,),
        kind=JobKind.ARRAY if case.forks > 1 else JobKind.GANG,
        total_steps=MINUTES[name] * 60 * _STEPS_PER_S,
        duration_ms=MINUTES[name] * 60_000,
        restarts=Restarts(checkpoint_ms=0, launch_ms=_MOVE_MS),
        forking=ForkRules(case.forks, MergeRule(every_ms=case.every_ms)),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """How a mix is run.

    Attributes:
        cluster: On what, by its name.
        forks: Of each job at most.
        merge_ms: Duration of a merge.
        every_ms: From one merge to the next.
        slot: How often there is a plan.
    """

    cluster: str
    policy: str
    forks: int
    merge_ms: int
    every_ms: int
    slot: Slot


def _forking(case: Case) -> Forking | None:
    section = OnePolicySection(name=case.policy)
    return None if forking_by(section) is None else Forking(case.every_ms)


def run(mix: Sequence[str], case: Case) -> dict[str, float]:
    """Run a mix to its end; returns its figures."""
    types, speeds = CLUSTERS[case.cluster].types, CLUSTERS[case.cluster].speeds
    servers = [Servers(Family(it), types.count(it), 1) for it in dict.fromkeys(types)]
    nodes = {fleet_node.name: fleet_node for fleet_node in fleet_nodes(servers)}
    metrics = RunMetrics(occupancies=[])
    round_ms = 1_000 * case.slot.round_s

    def model_of(run: RunId) -> str:
        return run.partition("-")[0].upper()

    cluster = SimulatedCluster(
        (),
        case.slot.policy(case.policy),
        settings=Settings(
            nodes=nodes,
            round_gap_ms=round_ms,
            partitions=Partitions(whole=Partition(default=True, forking=_forking(case))),
        ),
        delays=EqualDelays(fetch_ms=0, start_ms=_MOVE_MS, stop_ms=0, report_ms=10_000),
        # A fork is told when to stop; it would have work for longer.
        work_of=lambda run: Work(
            MINUTES[model_of(run)] * 60_000.0 * (1 if case.forks == 1 else 1_000),
            steps_per_s=float(_STEPS_PER_S),
            tells_total=case.forks == 1,
        ),
        speed_of=lambda run, family: speeds[model_of(run)][family],
        attempt_log=metrics,
        latency_ms=0,
        merge_ms=case.merge_ms,
    )
    cluster.run(lambda: cluster.timeline.now() > 2 * round_ms)  # all nodes are there
    for number, name in enumerate(mix, 1):
        cluster.submit(_spec(number, name, case))
    if not cluster.run(cluster.quiet, limit_ms=_LONGEST_MS):
        raise RuntimeError(f"{case}: the jobs do not end")
    jobs = list(cluster.state.jobs.values())
    began = min(job.submitted_ms for job in jobs)
    took = [job.finished_ms - began for job in jobs if job.finished_ms is not None]
    trained = sum(occupancy.moving_ms for occupancy in metrics.occupancies or ())
    return {
        "total_s": round(max(took) / 1000),
        "mean_s": round(fmean(took) / 1000),
        "first_s": round(min(took) / 1000),
        "used": round(trained / (max(took) * len(types)), 3),
    }


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", choices=tuple(CLUSTERS), default="aws")
    parser.add_argument("--policy", action="append", help="by default fifo")
    parser.add_argument(
        "--merge-s", type=float, action="append", help="by default 0, 10, 20, 40, 80"
    )
    parser.add_argument("--every-s", type=float, default=360.0, help="from one merge to the next")
    parser.add_argument("--round-s", type=int, default=360, help="from one plan to the next")
    parser.add_argument("--slot-s", type=int, action="append", help="both, and the time of a place")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _cases(chosen: argparse.Namespace) -> Iterator[Case]:
    costs = chosen.merge_s or [0, 10, 20, 40, 80]
    slots = [(Slot(it, leased=True), it) for it in chosen.slot_s or ()]
    nodes = len(CLUSTERS[chosen.cluster].types)
    for policy in chosen.policy or ["fifo"]:
        for slot, every_s in slots or [(Slot(chosen.round_s), chosen.every_s)]:
            every_ms = round(1000 * every_s)
            if forking_by(OnePolicySection(name=policy)) is None:
                yield Case(chosen.cluster, policy, 1, 0, every_ms, slot)
            for cost in costs:
                yield Case(chosen.cluster, policy, nodes, round(1000 * cost), every_ms, slot)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of each policy and mix."""
    chosen = _arguments(arguments)
    rows = Rows(as_json=chosen.json)
    for case in _cases(chosen):
        for mix, names in MIXES.items():
            told = {
                "policy": case.policy,
                "slot_s": case.slot.round_s,
                "forks": case.forks,
                "merge_s": case.merge_ms / 1000,
                "mix": mix,
            }
            rows.add({**told, **run(names, case)})
    rows.show()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
