"""Times of each kind of work that a round's budget counts, beside the weight that it has.

Run as `python -m benchmarks.round_work [--tasks N] [--json]`. Kinds of work of the local search are
told apart by least squares over many searches. Each other kind is done alone, many times, on tasks
that all differ, and its processor time is divided by its count: pairs of instances compared
to send tasks back, sets that pricing looks at, choices that it makes, and tasks that a whole round
of the default policy places. `packing.round_work` has the weights; they decide plans, so they are
changed on purpose alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]

from benchmarks import packing
from benchmarks.distinct import arrived
from benchmarks.harness import Figures, options, publish, surroundings
from eva_lab.runs import named_policy
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.compiled.library import WORK
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.homing import send_home
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.search import search
from eva_master.packing.local_search.search_start import begun, search_start
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.round_work import WorkBudget, WorkKind
from eva_master.testing.snapshots import Cluster, offer, task

_TASKS = 300
_REPEATED = 20
_TRIALS = 1_000
_SPREAD = 200
"""Tasks of many sizes, of which pricing makes sets."""


class Counts(WorkBudget):
    """A budget without an end that counts each kind of work."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(WorkKind, 0)

    def spend(self, work: WorkKind, count: int = 1) -> None:
        """Count work that was done."""
        self.counts[work] += count


def searches(tasks: int) -> dict[WorkKind, float]:
    """Nanoseconds of each kind of work of the local search, by least squares over its searches.

    Tasks that all differ meet new loads, tasks of arrays only consider places, members of gangs
    are looked at, and large instances of small tasks have many taken from them.
    """
    crowd = Cluster(offer("large", (0, 60, 240), 6.0), offer("small", (0, 4, 16), 0.4))
    crowd.job("a", *[task("w", any=(0, 1, 4))] * tasks)
    snapshots = [arrived(tasks, distinct=True), arrived(tasks, distinct=False), gangs(tasks)]
    counted, taken = list[list[int]](), list[float]()
    for snapshot in [*snapshots, crowd.snapshot()]:
        problem = Problem(snapshot, Valuation())
        cache = LoadCache(problem, CostWeights())
        start = search_start(problem, cache, configure(problem, waiting(problem)))
        cache.begin(counts := Counts())
        for seed in range(_REPEATED):
            before = dict(counts.counts)
            taken.append(_nanoseconds(lambda: search(start, cache, [seed], _TRIALS)))  # noqa: B023
            counted.append([counts.counts[kind] - before[kind] for kind in WORK])
    # Each search counts alike, a short one as much as a long one.
    weights, _ = nnls(np.array(counted) / np.array(taken)[:, None], np.ones(len(taken)))
    return dict(zip(WORK, weights.tolist(), strict=True))


def sets(snapshot: Snapshot) -> float:
    """Nanoseconds of a set that pricing looks at, all of column generation included."""
    problem, counts = Problem(snapshot, Valuation()), Counts()
    optimizer = Optimizer(problem, Tier.LP, (), sets=counts)
    runs = waiting(problem)
    return (
        _nanoseconds(lambda: configure(problem, runs, optimizer.pack)) / counts.counts[WorkKind.SET]
    )


def choices() -> float:
    """Nanoseconds of a node of the search for sets of tasks that slow each other down."""
    trial = packing.spread_out(_SPREAD, 0)
    table = packing.table_of(packing.PAIRS, trial)
    problem = Problem(packing.snapshot(trial, table), Valuation())
    supply, counts = {one.id: one.limit for one in problem.offerings}, Counts()
    optimizer = Optimizer(problem, Tier.LP, (), sets=counts)
    taken = _nanoseconds(lambda: optimizer.bound(problem.counts(problem.class_of), supply))
    taken -= counts.counts[WorkKind.SET] * WorkKind.SET
    return taken / counts.counts[WorkKind.CHOICE]


def exchanged(tasks: int) -> float:
    """Nanoseconds of a pair of instances, of which each has the task of another one."""
    cluster = Cluster(offer("box", (0, 8, 32), 1.0))
    for number in range(tasks):
        cluster.instance(f"i{number}", "box")
        cluster.job(f"j{number}", task("w", any=(0, 4, 8)), on=[f"i{number}"])
    problem = Problem(cluster.snapshot(), Valuation())
    cache, counts, start = LoadCache(problem, CostWeights()), Counts(), configure(problem, ())
    places = [*start.places.values()]
    moved = dict(zip(start.places, [*places[1:], places[0]], strict=True))
    numbered = search_start(problem, cache, replace(start, places=moved))
    taken = _nanoseconds(lambda: send_home(numbered, cache, begun(numbered), counts))
    return taken / counts.counts[WorkKind.EXCHANGED]


def placed(snapshot: Snapshot) -> float:
    """Nanoseconds of a task that a whole round of the default policy places, searches left out."""
    policy, _ = named_policy("eva")
    snapshot = replace(snapshot, work=0)
    return _nanoseconds(lambda: policy.plan(snapshot, None)) / len(snapshot.runs)


def gangs(tasks: int) -> Snapshot:
    """Gangs of two tasks that share instances."""
    cluster = Cluster(offer("large", (0, 32, 64), 1.4))
    for number in range(tasks // 2):
        cluster.job(f"g{number:05}", *[task(f"w{number % 7}", any=(0, 3, 4 + number % 9))] * 2)
    return cluster.snapshot()


def _nanoseconds(call: Callable[[], object]) -> float:
    began = time.process_time_ns()
    call()
    return float(time.process_time_ns() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns the exit code."""
    assert __doc__
    chosen = options(__doc__, arguments, tasks=_TASKS)
    distinct = arrived(chosen.tasks, distinct=True)
    placed(arrived(10, distinct=True))  # what is imported and compiled at first
    measured = searches(chosen.tasks) | {
        WorkKind.SET: sets(distinct),
        WorkKind.CHOICE: choices(),
        WorkKind.EXCHANGED: exchanged(chosen.tasks),
        WorkKind.PLACED: placed(distinct),
    }
    figures: Figures = {"surroundings": surroundings(), "tasks": chosen.tasks}
    for work, nanoseconds in measured.items():
        figures[work.name.lower()] = {"measured_ns": round(nanoseconds), "weight_ns": int(work)}
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
