"""Times of each kind of work that a round's budget counts, beside the weight that it has.

Run as `python -m benchmarks.round_work [--tasks N] [--json]`. Each kind is done alone, many times,
on tasks that all differ, and its processor time is divided by its count: loads that are met and
valued, places that are considered again for tasks of arrays and of gangs, tasks that are taken from
their places and put back, pairs of instances that are compared to send tasks back, sets that
pricing looks at, and tasks that a whole round of the default policy places. `packing.round_work`
has the weights; they decide plans, so they are changed on purpose alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from benchmarks.distinct import arrived
from benchmarks.harness import Figures, options, publish, surroundings
from eva_lab.runs import named_policy
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.local_search.homing import send_home
from eva_master.packing.local_search.load_cache import LoadCache
from eva_master.packing.local_search.trial import Trial
from eva_master.packing.local_search.working_configuration import WorkingConfiguration
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.round_work import WorkBudget, WorkKind
from eva_master.testing.snapshots import Cluster, offer, task

_TASKS = 300
_REPEATED = 20


class Counts(WorkBudget):
    """A budget without an end that counts each kind of work."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(WorkKind, 0)

    def spend(self, work: WorkKind, count: int = 1) -> None:
        """Count work that was done."""
        self.counts[work] += count


def loads(snapshot: Snapshot) -> float:
    """Nanoseconds of a load of two tasks that is met and valued for the first time."""
    problem = Problem(snapshot, Valuation())
    cache, counts = LoadCache(problem, CostWeights()), Counts()
    cache.begin(counts)
    numbers = [cache.number(task_class) for task_class in problem.classes]
    empty = cache.empty[min(cache.empty)]

    def meet() -> None:
        for first in numbers[:_REPEATED]:
            load = cache.meet(empty, first)
            for second in numbers if load is not None else ():
                both = cache.meet(load, second)
                if both is not None and both.lost < 0:
                    cache.lost(both)

    return _nanoseconds(meet) / counts.counts[WorkKind.LOAD]


def places(snapshot: Snapshot) -> dict[WorkKind, float]:
    """Nanoseconds of all places that are considered for each task, with loads that were met."""
    problem = Problem(snapshot, Valuation())
    cache = LoadCache(problem, CostWeights())
    working = WorkingConfiguration(problem, cache, configure(problem, waiting(problem)))
    trial = Trial(working, [slot for slot in working.slots if slot.movable][:_REPEATED])
    options_ = [*trial.touched, *working.candidates()]

    def consider() -> None:
        for run in trial.pool:
            working.cheapest(run, options_, trial.touched)

    consider()
    counts = Counts()
    cache.budget = counts
    taken = _nanoseconds(lambda: [consider() for _ in range(_REPEATED)])
    return {work: taken / counts.counts[work] if counts.counts[work] else 0.0 for work in WorkKind}


def taken(snapshot: Snapshot) -> float:
    """Nanoseconds of a task that is taken from its place, put back, and the change undone."""
    problem, counts = Problem(snapshot, Valuation()), Counts()
    cache = LoadCache(problem, CostWeights())
    cache.budget = counts
    working = WorkingConfiguration(problem, cache, configure(problem, waiting(problem)))
    slots = [slot for slot in working.slots if slot.movable]

    def change() -> None:
        for slot in slots:
            trial = Trial(working, [slot])
            for run in trial.pool:
                trial.put(run, slot)
            trial.undo()

    change()
    counts.counts[WorkKind.TAKEN] = 0
    return (
        _nanoseconds(lambda: [change() for _ in range(_REPEATED)]) / counts.counts[WorkKind.TAKEN]
    )


def sets(snapshot: Snapshot) -> float:
    """Nanoseconds of a set that pricing looks at, all of column generation included."""
    problem, counts = Problem(snapshot, Valuation()), Counts()
    optimizer = Optimizer(problem, Tier.LP, (), sets=counts)
    runs = waiting(problem)
    return (
        _nanoseconds(lambda: configure(problem, runs, optimizer.pack)) / counts.counts[WorkKind.SET]
    )


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
    working = WorkingConfiguration(problem, cache, replace(start, places=moved))
    return _nanoseconds(lambda: send_home(working, counts)) / counts.counts[WorkKind.EXCHANGED]


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
    alone = places(distinct)[WorkKind.CANDIDATE]
    together = places(gangs(chosen.tasks))
    beside = together[WorkKind.CANDIDATE] - alone
    members = together[WorkKind.MEMBERS] * max(0.0, beside) / together[WorkKind.CANDIDATE]
    measured = {
        WorkKind.LOAD: loads(distinct),
        WorkKind.CANDIDATE: alone,
        WorkKind.MEMBERS: members,
        WorkKind.TAKEN: taken(gangs(chosen.tasks)),
        WorkKind.SET: sets(distinct),
        WorkKind.EXCHANGED: exchanged(chosen.tasks),
        WorkKind.PLACED: placed(distinct),
    }
    figures: Figures = {"surroundings": surroundings(), "tasks": chosen.tasks}
    for work, nanoseconds in measured.items():
        figures[work.name.lower()] = {"measured_ns": round(nanoseconds), "weight_ns": int(work)}
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
