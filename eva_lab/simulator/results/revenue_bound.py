"""An upper bound of the worth of a trace's jobs under any scheduler, by an LP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import highspy
import numpy as np

from eva_master.model.trace import Trace, TraceJob
from eva_master.packing.lp.pricing.knapsack import Floats
from eva_master.packing.lp.solver import INFINITY, add_rows, solver
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR

SLOT_MS = MILLIS_PER_HOUR


@dataclass(frozen=True, slots=True)
class _Work:
    """A job in slots.

    Attributes:
        arrival: In which it arrives.
        hours: Of one worker.
        most: Workers at a time.
        values: Worth of the job if it ends with a slot; for each slot from its arrival on.
    """

    arrival: int
    hours: float
    most: int
    values: Floats


def revenue_bound(trace: Trace) -> float:
    """Dollars that nobody's revenue exceeds where time is cut into slots of an hour.

    A job is worth a part of its value for each part of its work, by when that is done: at the end
    of the slot at the earliest, and no sooner after its arrival than all workers that it can use
    could be done with all of it. The job uses at most as many workers at a time as it has tasks,
    and all jobs together at most as many as there are GPUs. Members are as fast on several
    instances as on one, and moves cost nothing. So every schedule, preemptive or not, is a
    solution.

    Args:
        trace: Elastic gangs of tasks of one GPU each, with what they are worth, and nodes.
    """
    gpus = sum(node.offering.type.capacity.gpus for node in trace.nodes)
    slots = _horizon(trace.jobs, gpus)
    works = [_work(job, slots) for job in trace.jobs]
    return _solved([work for work in works if work.values.any()], gpus, slots)


def _horizon(jobs: Sequence[TraceJob], gpus: int) -> int:
    """A number of slots within which an optimal solution is done.

    After the last arrival, as long as work of a job waits, either all GPUs are in use or that job
    uses all workers that it can: else it would be moved to that slot and be worth no less.
    """
    hours = [job.duration_ms / MILLIS_PER_HOUR for job in jobs]
    longest = max(all_ / len(job.tasks) for all_, job in zip(hours, jobs, strict=True))
    last = max(job.arrival_ms for job in jobs) // SLOT_MS
    return last + ceil(sum(hours) / gpus) + ceil(longest) + 2


def _work(job: TraceJob, slots: int) -> _Work:
    hours, most = job.duration_ms / MILLIS_PER_HOUR, len(job.tasks)
    arrival = job.arrival_ms // SLOT_MS
    step = min(1.0, hours / most)
    soonest = hours / most
    ends = (max(slot + step, soonest) for slot in range(slots - arrival))
    assert job.worth is not None
    values = [job.worth.after(round(end * MILLIS_PER_HOUR)) / MILLION for end in ends]
    return _Work(arrival, hours, most, np.array(values))


def _solved(works: Sequence[_Work], gpus: int, slots: int) -> float:
    """The optimum: a row for each slot, then one for each job; a column for each slot of a job."""
    if not works:
        return 0.0
    lp = solver()
    lp.setOptionValue("presolve", "on")
    add_rows(lp, np.full(slots + len(works), -INFINITY), _limits(works, gpus, slots))
    for number, work in enumerate(works):
        _add_columns(lp, slots + number, work)
    lp.run()
    return -float(lp.getObjectiveValue())


def _limits(works: Sequence[_Work], gpus: int, slots: int) -> Floats:
    return np.array([float(gpus)] * slots + [work.hours for work in works])


def _add_columns(lp: highspy.Highs, row: int, work: _Work) -> None:
    """A column for each slot in which a job is worth something, in worker-hours."""
    own = np.flatnonzero(work.values)
    size = len(own)
    rows = np.empty(2 * size, dtype=np.int32)
    rows[0::2] = own + work.arrival
    rows[1::2] = row
    lp.addCols(
        size,
        -work.values[own] / work.hours,
        np.zeros(size),
        np.full(size, min(float(work.most), work.hours)),
        2 * size,
        np.arange(0, 2 * size, 2, dtype=np.int32),
        rows,
        np.ones(2 * size),
    )
