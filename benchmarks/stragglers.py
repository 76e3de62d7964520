"""How much earlier an array ends whose late tasks get a second run.

Run as `python -m benchmarks.stragglers [--tasks N] [--share P] [--factor F] [--seeds N] [--json]`.
Simulated clusters, with the control loop of production and nothing stated of run times. Most runs
of a task take about ten minutes. A share of the runs, by chance and whatever the task, takes
several times as long: the second run of a late task is drawn anew. The cluster has machines of its
own, or buys instances under a policy while other jobs keep some of them up. Figures are means over
several seeds. Times and costs are those of the array, as parts of what they are without second
runs.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmarks.harness import Figures, publish, surroundings
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.sections.building import build_policy
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.job import ArrayRules, JobSpec, Program, Stragglers, TaskSpec
from eva_master.model.records import Job
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload

TASKS, SHARE, FACTOR, SEEDS = 100, 0.04, 6.0, 2
WHERE = ("own machines", "eva", "no_packing", "stratus")
_MINUTES_10 = 600_000
_SPREAD = 0.15
_C = Family("c")
_BOX = InstanceType("c.8", _C, Resources(0, 8_000, 16_384), acquisition_ms=30_000, setup_ms=30_000)
_OFFERING = Offering(_BOX, Price(400_000))
_TASK = TaskSpec(
    Workload("w"), Program("true"), ((_C, Resources(0, 1_000, 1_024)),), reports_steps=False
)
_OTHER = TaskSpec(
    Workload("v"), Program("true"), ((_C, Resources(0, 3_000, 1_024)),), reports_steps=False
)
_OTHERS, _OTHERS_MS = 6, 7_200_000
_NODES = 5
_FENCE_MS = 60_000
_DUPLICATE = Stragglers.DUPLICATE


@dataclass(frozen=True)
class Sizes:
    """The array.

    Attributes:
        share: Of runs that are slow.
        factor: How much longer these take.
    """

    tasks: int
    share: float
    factor: float


@dataclass(frozen=True)
class Run:
    """Results of one array.

    Attributes:
        minutes: From its submission to its end.
        usd: Charges of the array.
        replicas_usd: The part of that for second runs.
        doubled: How many tasks got a second run.
        won: How many of these second runs won.
    """

    minutes: float
    usd: float
    replicas_usd: float
    doubled: int
    won: int


def run(where: str, sizes: Sizes, stragglers: Stragglers, seed: int) -> Run:
    """Run one array to its end.

    Raises:
        RuntimeError: The array does not end.
    """
    cluster = _cluster(where, sizes, seed)
    tasks = (_TASK,) * sizes.tasks
    spec = JobSpec("late", "b", tasks, kind=JobKind.ARRAY, array=ArrayRules(stragglers=stragglers))
    for number in range(0 if where == WHERE[0] else _OTHERS):
        cluster.submit(JobSpec(f"other{number}", "b", (_OTHER,), duration_ms=_OTHERS_MS))
    command = cluster.submit(spec, Millis(60_000))

    def job() -> Job | None:
        reply = cluster.answers.replies.get(command)
        return None if reply is None or reply.job is None else cluster.state.jobs[reply.job]

    ended = cluster.run(lambda: (known := job()) is not None and known.finished_ms is not None)
    found = job()
    if not ended or found is None or found.finished_ms is None:
        raise RuntimeError("the array did not end")
    account = ledger.job_account(cluster.state, found.id, cluster.timeline.now())
    extra = [member for member in cluster.state.members(found.id) if member.extra]
    exact = 3_600_000 * 1_000_000
    return Run(
        (found.finished_ms - found.submitted_ms) / 60_000,
        account.charged / exact,
        account.replicas / exact,
        len(extra),
        sum(it.state.value == "succeeded" for it in extra),
    )


def _cluster(where: str, sizes: Sizes, seed: int) -> SimulatedCluster:
    def work_of(name: RunId) -> Work:
        spec = cluster.state.jobs[JobId(name.rpartition("/")[0])].spec
        if spec.name != "late":
            return Work(_OTHERS_MS)
        rng = random.Random(f"{seed}/{name}")
        slow = sizes.factor if rng.random() < sizes.share else 1.0
        return Work(_MINUTES_10 * slow * rng.lognormvariate(0, _SPREAD), publishes=False)

    own = where == WHERE[0]
    machine = replace(_BOX, acquisition_ms=0, setup_ms=0)
    owned = Offering(machine, _OFFERING.price, NODE_ZONE, Purchase.OWNED)
    names = [InstanceId(f"n{number}") for number in range(_NODES if own else 0)]
    cluster = SimulatedCluster(
        () if own else (_OFFERING,),
        build_policy("eva" if own else where, {}),
        settings=Settings(nodes={it: OwnedNode(it, owned, _FENCE_MS) for it in names}),
        work_of=work_of,
    )
    return cluster


def compared(where: str, sizes: Sizes, seeds: int) -> Figures:
    """The means over several seeds, with second runs against without."""
    pairs = [
        [run(where, sizes, it, seed) for it in (Stragglers.KEEP, _DUPLICATE)]
        for seed in range(seeds)
    ]
    before, after = ([pair[number] for pair in pairs] for number in range(2))
    doubled = sum(it.doubled for it in after)
    return {
        "minutes_without": round(fmean(it.minutes for it in before), 1),
        "minutes": round(fmean(it.minutes for it in after), 1),
        "time": round(fmean(b.minutes / a.minutes for a, b in pairs), 3),
        "cost": round(fmean(b.usd / a.usd for a, b in pairs), 3),
        "for_second_runs": round(fmean(it.replicas_usd / it.usd for it in after), 3),
        "doubled": round(doubled / seeds, 1),
        "won": round(sum(it.won for it in after) / max(1, doubled), 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stragglers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--share", type=float, default=SHARE, help="of runs that are slow")
    parser.add_argument("--factor", type=float, default=FACTOR, help="how much longer they take")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args(arguments)
    sizes = Sizes(given.tasks, given.share, given.factor)
    figures: Figures = surroundings()
    for where in WHERE:
        figures[where] = compared(where, sizes, given.seeds)
    return publish(figures, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
