"""The cost of estimating run times: for a task that has finished, and in memory.

Run as `python -m benchmarks.estimates [--tasks N] [--owners N] [--json]`. Tasks of an array finish
one after the other, and after each the estimate is made that policies are shown. Earlier jobs of
the owner have taught as much as is kept of one owner. `us_per_task` is processor time, the least of
several trials; `calls_per_task` is the same on every machine. `us_per_job` is the cost of a job
that ends, which does not depend on the number of its tasks. Memory is that of what is learned of
many owners, at the bounds, with the last values of each feature that `3sigma` and `point` keep.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from random import Random

from benchmarks.calls import Calls
from benchmarks.harness import Figures, publish, surroundings
from eva_master.control.measure.estimates import JobEstimates
from eva_master.control.state.finished import FinishedTasks
from eva_master.control.state.view_cache import ToldEstimates
from eva_master.learning.run_times.past_values import PastValues, kept_for
from eva_master.learning.run_times.posterior import NONE_FINISHED, Finished
from eva_master.learning.runtimes import (
    VALUES_KEPT,
    VALUES_PER_OWNER,
    OwnerTimes,
    RunTimes,
    Traits,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.estimate import Estimates
from eva_master.model.records import Job, TaskRun, untouched
from eva_master.model.resources import Resources
from eva_master.model.values import replace
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, JobId, Millis, Workload
from eva_wire.values.states import JobState

TASKS, OWNERS = 2_000, 64
GOAL_US = 20.0
"""Processor time that an estimate may cost for each finished task, in microseconds."""
GOAL_MIB = 8.0
_TRIALS = 5
_JOBS = 100
_FEW = 5
_NEED = Resources(0, 1_000, 1_024)
_TASK = TaskSpec(Workload("w"), Program("true"), ((Family("c"), _NEED),))
_OWNER = "owner"


def _taught(owners: int, mode: Estimates, most: int) -> RunTimes:
    """Knowledge from jobs of many names, with so many values in all."""
    times, rng = RunTimes(), Random(1)
    for number in range(most):
        name, owner = f"job{number}x", f"{_OWNER}{number % owners}"
        traits = Traits(f"w{number}", name, Millis(number * 3_600_000), _NEED)
        finished = NONE_FINISHED.plus(rng.randint(1_000, 10_000_000))
        times = times.observe(owner, traits, finished, Millis(number), kept_for(mode))
    return times


def _job(rng: Random) -> Finished:
    """A finished job of two tasks."""
    took = rng.randint(1_000, 10_000_000)
    return NONE_FINISHED.plus(took).plus(took + rng.randint(0, took))


def _full(mode: Estimates, owners: int) -> RunTimes:
    """As much as is kept, of some past jobs each."""
    times, rng = _taught(owners, mode, VALUES_KEPT), Random(2)
    jobs, size = [_job(rng) for _ in range(_FEW)], len(PastValues.of([0] * kept_for(mode)).packed)
    filled = {}
    for owner, known in times.owners.items():
        spreads = {}
        for value, spread in known.spreads.items():
            for finished in jobs:
                spread = spread.plus(finished, Millis(0))  # noqa: PLW2901
            spreads[value] = replace(spread, last=PastValues(rng.randbytes(size)))
        filled[owner] = OwnerTimes(spreads, known.doubted)
    return RunTimes(filled)


class _Array:
    """An array whose tasks finish, as the control loop sees them."""

    def __init__(self, tasks: int) -> None:
        self.spec = JobSpec("job", f"{_OWNER}0", (_TASK,) * tasks, kind=JobKind.ARRAY)
        self.known = _taught(1, Estimates.POSTERIOR, VALUES_PER_OWNER).of(f"{_OWNER}0")
        self.job = Job(JobId("job-1"), self.spec, Millis(0), ((JobState.PENDING.value, 0),))
        rng = Random(3)
        self.runs: list[tuple[TaskRun, TaskRun]] = []
        for index in range(tasks):
            before = untouched(self.job, index)
            self.runs.append((before, replace(before, took_ms=rng.randint(50_000, 80_000))))

    def finish(self) -> None:
        """Have all tasks finish, and estimate after each."""
        followed, told = FinishedTasks(), ToldEstimates()
        for before, after in self.runs:
            followed.follow(before, after, self.job)
            finished = followed.telling(self.job)
            mode = Estimates.POSTERIOR
            made = JobEstimates(self.spec, Millis(0), mode, self.known, finished, told)
            if made.expected_ms((_TASK,)) is None:
                raise RuntimeError("finished tasks tell nothing")


def _calls(work: Callable[[], None]) -> int:
    calls = Calls(builtins=True)
    with calls.counting():
        work()
    return calls.made


def _cpu_s(work: Callable[[], None]) -> float:
    """Processor time, the least of several trials: what disturbs makes it longer."""
    found = []
    for _ in range(_TRIALS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def calls_per_task(tasks: int) -> float:
    """Calls of functions for each task of an array of so many."""
    return round(_calls(_Array(tasks).finish) / tasks, 1)


def mib(mode: Estimates, owners: int) -> float:
    """Memory of what is learned of so many owners, as much as is kept."""
    tracemalloc.start()
    try:
        kept = _full(mode, owners)
        found, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if sum(len(owner.spreads) for owner in kept.owners.values()) != VALUES_KEPT:
        raise RuntimeError("less is kept than may be")
    return found / (1 << 20)


def measure(tasks: int, owners: int) -> Figures:
    """All figures.

    Args:
        tasks: Of the array.
        owners: Of what is learned.
    """
    array, full = _Array(tasks), _taught(owners, Estimates.POSTERIOR, VALUES_KEPT)
    traits, ended = Traits("w", "job", Millis(0), _NEED), NONE_FINISHED.plus(60_000)

    def teach() -> None:
        for _ in range(_JOBS):
            full.observe(f"{_OWNER}0", traits, ended, Millis(0))

    return {
        "us_per_task": round(_cpu_s(array.finish) / tasks * 1e6, 1),
        "calls_per_task": calls_per_task(tasks),
        "us_per_job": round(_cpu_s(teach) / _JOBS * 1e6, 1),
        "mib": round(mib(Estimates.POSTERIOR, owners), 2),
        "mib_with_last_values": round(mib(Estimates.POINT, owners), 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=TASKS, help="of the array")
    parser.add_argument("--owners", type=int, default=OWNERS, help="of what is learned")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    chosen = parser.parse_args(arguments)
    figures: Figures = surroundings() | measure(chosen.tasks, chosen.owners)
    goals = (("us_per_task", GOAL_US), ("mib", GOAL_MIB), ("mib_with_last_values", GOAL_MIB))
    figures["missed"] = [name for name, most in goals if figures[name] > most]
    return publish(figures, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
