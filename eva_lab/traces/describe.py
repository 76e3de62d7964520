"""Describes a trace in a few figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eva_master.model.catalog import Catalog
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, base_of


@dataclass(frozen=True, slots=True)
class Description:
    """A trace in figures.

    Attributes:
        span_h: From the first arrival to the last.
        gap_min: Mean time between two arrivals, in minutes.
        duration_h: Mean, median, 80th and 95th percentile and largest; of arrays that of a task as
            their users state it.
        arrays: Jobs that are arrays.
        array_task_h: Task-hours of arrays as they are; `None` if there are none.
        past: Jobs that ended before it begins.
        gpu_share: Jobs by GPUs of a task, as a share of all jobs.
        gang_share: Jobs by number of tasks, as a share of all jobs.
        base_share: Jobs by base workload, as a share of all jobs.
        classes: How many distinct workloads there are.
        alone_usd: Cost if each task had its own cheapest instance for exactly as long as its job,
            or the task of an array, runs alone; `None` if no type of the catalog can hold one of
            them.
    """

    name: str
    jobs: int
    tasks: int
    span_h: float
    gap_min: float
    duration_h: Mapping[str, float]
    gpu_share: Mapping[int, float]
    gang_share: Mapping[int, float]
    base_share: Mapping[str, float]
    classes: int
    alone_usd: float | None
    arrays: int = 0
    array_task_h: Mapping[str, float] | None = None
    past: int = 0


def describe(trace: Trace, catalog: Catalog) -> Description:
    """Describe a trace, which must have a job."""
    jobs = trace.jobs
    arrays = [job for job in jobs if job.is_array]
    array_tasks = [_lasts_ms(job, task) for job in arrays for task in job.tasks]
    span_ms = jobs[-1].arrival_ms - jobs[0].arrival_ms
    return Description(
        name=trace.name,
        jobs=len(jobs),
        tasks=sum(len(job.tasks) for job in jobs),
        span_h=span_ms / MILLIS_PER_HOUR,
        gap_min=span_ms / 60_000 / max(1, len(jobs) - 1),
        duration_h=_spread([job.duration_ms for job in jobs]),
        gpu_share=_shares([max(map(_gpus, job.tasks)) for job in jobs]),
        gang_share=_shares([len(job.tasks) for job in jobs]),
        base_share=_shares([str(base_of(job.workload)) for job in jobs]),
        classes=len({job.workload for job in jobs}),
        alone_usd=_alone_usd(trace, catalog),
        arrays=len(arrays),
        array_task_h=_spread(array_tasks) if array_tasks else None,
        past=len(trace.past),
    )


def _lasts_ms(job: TraceJob, task: TraceTask) -> int:
    """How long a task runs alone."""
    return job.duration_ms if task.duration_ms is None else task.duration_ms


def _spread(durations_ms: Sequence[int]) -> dict[str, float]:
    hours = np.array(durations_ms) / MILLIS_PER_HOUR
    return {
        "mean": float(hours.mean()),
        "median": float(np.quantile(hours, 0.5)),
        "p80": float(np.quantile(hours, 0.8)),
        "p95": float(np.quantile(hours, 0.95)),
        "max": float(hours.max()),
    }


def _shares(values: Sequence[Any]) -> dict[Any, float]:
    return {value: count / len(values) for value, count in sorted(Counter(values).items())}


def _gpus(task: TraceTask) -> int:
    demands = [task.demand, *(need for _, need in task.demand_by_family)]
    return max(need.gpus for need in demands if need is not None)


def _alone_usd(trace: Trace, catalog: Catalog) -> float | None:
    families = {offering.type.family for offering in catalog}
    prices: dict[tuple[tuple[str, Resources], ...], int | None] = {}
    exact = 0
    for job in trace.jobs:
        for task in job.tasks:
            needs = task.resolved(families)
            if needs not in prices:
                prices[needs] = min(
                    (
                        offering.price
                        for family, need in needs
                        for offering in catalog
                        if offering.type.family == family and need.fits(offering.type.capacity)
                    ),
                    default=None,
                )
            price = prices[needs]
            if price is None:
                return None
            exact += price * _lasts_ms(job, task)
    return exact / MILLIS_PER_HOUR / MILLION
