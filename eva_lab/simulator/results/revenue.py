"""The worth of jobs when they end, where time is cut into slots of an hour."""

from __future__ import annotations

from collections.abc import Iterable

from eva_lab.simulator.results.metrics import JobFigures
from eva_lab.simulator.results.revenue_bound import SLOT_MS
from eva_master.model.trace import Trace
from eva_wire.values.ids import MILLION


def revenue_usd(jobs: Iterable[JobFigures], trace: Trace) -> float:
    """Dollars that jobs are worth by when they end, at the end of that slot.

    Args:
        jobs: Jobs that ended.
        trace: Trace of the run; jobs without a stated worth count nothing.
    """
    return sum(values_of(jobs, trace).values()) / MILLION


def values_of(jobs: Iterable[JobFigures], trace: Trace) -> dict[str, int]:
    """Worth of each job by its name in the trace, in micro-dollars."""
    worths = {job.id: job.worth for job in trace.jobs}
    values = {}
    for job in jobs:
        worth = worths[job.name]
        ended = -(-job.finished_ms // SLOT_MS) * SLOT_MS
        values[job.name] = 0 if worth is None else worth.after(ended - job.submitted_ms)
    return values
