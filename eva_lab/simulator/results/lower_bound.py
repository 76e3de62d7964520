"""A lower bound on the cost of a trace: the fractional packing bound, integrated over time.

Each job is present from its arrival for as long as it takes alone where it runs fastest; a slower
family must also pay for the rest of its work. At every moment the present tasks are packed
fractionally and without interference, at the proven bound of the configuration LP. Moves, starts
and empty instances cost nothing. The bound depends on the trace and the catalog, not on the policy.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from operator import itemgetter

import numpy as np

from eva_lab.simulator.scenario.submission import work_ms
from eva_master.model.catalog import Catalog
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.trace import Trace, TraceJob
from eva_master.packing.greedy.algorithm1 import Supply
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.lp.column_generation import (
    EffortLimits,
    Generated,
    Generator,
    PackingRequest,
)
from eva_master.packing.lp.columns import Column
from eva_master.packing.problem import Problem, Valuation
from eva_wire.values.ids import MILLION, JobId, Millis, RunId

_USED = 1e-9
_COLUMNS_KEPT = 1_500
"""Number of columns that are tried first with the next multiset of tasks."""
_BUDGET = EffortLimits(gap=2e-5, iterations=200, class_iterations=20_000, total_nodes=4_000_000)

Watch = Callable[[int, int], None]
"""Called with the number of moments done and of all moments."""


class ReferenceBound:
    """Solves one configuration LP per multiset of tasks, starting from the last columns.

    Args:
        trace: The jobs that arrive.
        catalog: The offerings on sale; their limits are ignored.
    """

    def __init__(self, trace: Trace, catalog: Catalog) -> None:
        self._trace = trace
        self._problem = problem = Problem(everything(trace, catalog), Valuation(interference=False))
        self._families = sorted({offering.type.family for offering in problem.offerings})
        self._supply: Supply = {offering.id: None for offering in problem.offerings}
        self._columns: dict[object, Column] = {}
        self._duals = np.full(len(problem.classes), np.nan)
        """Of the last bound in which each class was; NaN before the first one."""
        self._solved: dict[bytes, int] = {}
        self._alone = [self._single(number) for number in range(len(problem.classes))]

    def exact(self, watch: Watch | None = None) -> int:
        """The bound without rounding; see `eva_wire.values.ids.Exact`."""
        total = 0
        for done, (at, until) in enumerate(pairwise(self.times)):
            total += self.between(at, until)
            if watch is not None:
                watch(done + 1, len(self.times) - 1)
        return self.summed(total)

    @property
    def times(self) -> list[int]:
        """When tasks come or go, in order."""
        return [at for at, _ in self._there]

    def between(self, at: int, until: int) -> int:
        """The bound on the cost from one time to another, between which nobody comes or goes."""
        place = bisect_right(self._there, at, key=itemgetter(0)) - 1
        return self._hourly(self._there[place][1]) * (until - at)

    @staticmethod
    def summed(total: int) -> int:
        """The sum of such bounds, as an `eva_wire.values.ids.Exact`."""
        return total // MILLION

    @cached_property
    def _there(self) -> list[tuple[int, Ints]]:
        """The times at which tasks come or go, with the number of each class from then on."""
        counts: Ints = np.zeros(len(self._problem.classes), dtype=np.int64)
        steps = []
        for at, change in self._moments():
            counts = counts + change
            steps.append((at, counts))
        return steps

    def _moments(self) -> Iterator[tuple[int, Ints]]:
        """The times at which tasks come or go, in order, with the number of each class."""
        changes: dict[int, Ints] = {}
        nothing = np.zeros(len(self._problem.classes), dtype=np.int64)
        for job in self._trace.jobs:
            changes.setdefault(job.arrival_ms, nothing.copy())
            for index, end in enumerate(self._ends(job)):
                number = self._problem.class_of[_run(job, index)]
                changes[job.arrival_ms][number] += 1
                changes.setdefault(end, nothing.copy())[number] -= 1
        yield from sorted(changes.items(), key=lambda item: item[0])

    def _ends(self, job: TraceJob) -> list[int]:
        """When each task ends if it begins at once and runs where it is fastest.

        A gang runs at the pace of its slowest member.
        """
        speed_by_shape: dict[object, float] = {}
        speeds = []
        for task in job.tasks:
            shape = task.demand, task.demand_by_family, task.speed_by_family
            if shape not in speed_by_shape:
                demands = task.resolved(self._families, job.spot)
                speed_by_shape[shape] = (
                    max(task.speed_on(family) for family, _ in demands) / MILLION
                )
            speeds.append(speed_by_shape[shape])
        if not job.is_array:
            return [job.arrival_ms + round(work_ms(job) / min(speeds))] * len(speeds)
        return [
            job.arrival_ms + round(work_ms(job, index) / speed)
            for index, speed in enumerate(speeds)
        ]

    def _hourly(self, counts: Ints) -> int:
        """The bound on the cost of these tasks per hour, in millionths of micro-dollars."""
        key = counts.tobytes()
        if key not in self._solved:
            self._solved[key] = self._solve(counts) if counts.any() else 0
        return self._solved[key]

    def _solve(self, counts: Ints) -> int:
        request = PackingRequest(self._problem, counts, self._supply, self._duals)
        seeds = [self._alone[number] for number in np.flatnonzero(counts).tolist()]
        seeds += [
            column
            for column in self._columns.values()
            if all(count <= counts[number] for number, count in column.task_set)
        ]
        generated = Generator(request).run(seeds, _BUDGET)
        assert generated is not None, "every task alone covers all"
        self._remember(generated)
        present = counts > 0
        self._duals[present] = generated.duals[present]
        return generated.bound

    def _remember(self, generated: Generated) -> None:
        """Put the columns of a solution before those that are already known."""
        used = np.flatnonzero(generated.relaxed.amounts > _USED).tolist()
        columns = [generated.relaxation.columns[number] for number in used]
        fresh: dict[object, Column] = {
            (column.offering.id, column.task_set): column
            for column in columns
            if sum(count for _, count in column.task_set) > 1
        }
        kept = {**fresh, **self._columns}
        self._columns = dict(list(kept.items())[:_COLUMNS_KEPT])

    def _single(self, number: int) -> Column:
        offering = self._problem.reservation(number)
        assert offering is not None, "somebody checked that every task fits somewhere"
        slow = self._problem.slowness(number, offering.type.family)
        return Column(offering, ((number, 1),), (offering.price + slow) * MILLION)


def reference_bound(trace: Trace, catalog: Catalog, watch: Watch | None = None) -> int:
    """The lower bound of a trace, as an `eva_wire.values.ids.Exact`."""
    return ReferenceBound(trace, catalog).exact(watch)


def everything(trace: Trace, catalog: Catalog) -> Snapshot:
    """A snapshot with all tasks of a trace, so that they are classified once."""
    families = sorted({offering.type.family for offering in catalog})
    program = Program("true")
    runs, jobs = [], []
    for job in trace.jobs:
        ids = tuple(_run(job, index) for index in range(len(job.tasks)))
        for id_, task in zip(ids, job.tasks, strict=True):
            needs = task.resolved(families, job.spot)
            rates = tuple((family, task.speed_on(family)) for family, _ in needs)
            spec = TaskSpec(job.workload, program, needs, throughput=rates)
            runs.append(RunView(id_, JobId(job.id), spec, None, pinned=False, running=False))
        stated = JobSpec(job.id, "", (), kind=job.kind)
        jobs.append(JobView(JobId(job.id), stated, ids, Millis(job.arrival_ms)))
    return Snapshot(
        now_ms=Millis(0),
        catalog=catalog,
        jobs=tuple(sorted(jobs, key=lambda view: view.id)),
        runs=tuple(sorted(runs, key=lambda view: view.id)),
        instances=(),
    )


def _run(job: TraceJob, index: int) -> RunId:
    return RunId(f"{job.id}/{index}")
