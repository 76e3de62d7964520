"""The worth of jobs when they end, where time is cut into slots of an hour."""

from __future__ import annotations

from collections.abc import Iterable

from eva_lab.simulator.results.metrics import JobFigures
from eva_lab.simulator.results.revenue_bound import SLOT_MS
from eva_master.model.trace import Trace


def values_of(jobs: Iterable[JobFigures], trace: Trace) -> dict[str, int]:
    """Worth of each job when it ends, at the end of that slot, by its name, in micro-dollars.

    Args:
        jobs: Jobs that ended.
        trace: Trace of the run; jobs without a stated worth count nothing.
    """
    worths = {job.id: job.worth for job in trace.jobs}
    values = {}
    for job in jobs:
        worth = worths[job.name]
        ended = -(-job.finished_ms // SLOT_MS) * SLOT_MS
        values[job.name] = 0 if worth is None else worth.after(ended - job.submitted_ms)
    return values
