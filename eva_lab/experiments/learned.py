"""Experiments with jobs that recur: how well run times were estimated, and what that came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from eva_lab.simulator.results.dags import WatchedDags, accuracy_of_dags, completion_ms
from eva_lab.simulator.results.metrics import RunRecord, quantile
from eva_lab.simulator.results.run_times import WatchedEstimates, accuracy, sort_of, wide
from eva_lab.simulator.scenario.submission import work_ms
from eva_master.model.planning.estimate import Estimates
from eva_master.model.trace import Trace, TraceJob
from eva_wire.values.ids import MILLIS_PER_HOUR, RunId, job_of


def figures_of(
    watched: WatchedEstimates, record: RunRecord, trace: Trace, mode: Estimates, *, stated: bool
) -> dict[str, float]:
    """The figures of estimates, and of completion times that the outcome of a run has not.

    Args:
        watched: Has the estimates that the policy was given.
        record: Of the run.
        trace: Trace of the run.
        mode: Source of estimates.
        stated: Whether jobs told how long they take.

    Returns:
        By name; what is about estimates is left out if there were none.
    """
    measured = accuracy(watched.decisive(mode, stated=stated), trace.jobs)
    errors = {
        "estimate_error_p50": measured.p50,
        "estimate_error_p90": measured.p90,
        "right_queue": measured.right_queue,
    }
    return {
        "jct_p90_h": quantile([job.jct_ms / MILLIS_PER_HOUR for job in record.jobs], 0.9),
        **_by_sort(record, trace),
        "wait_share": _waited_ms(record) / sum(map(_whole_ms, trace.jobs)),
        "wide_jobs": float(measured.jobs),
        "estimated_jobs": float(measured.estimated),
        **(errors if measured.estimated else {}),
    }


def figures_of_dags(
    watched: WatchedDags, record: RunRecord, trace: Trace, mode: Estimates, *, stated: bool
) -> dict[str, float]:
    """The figures of whole DAGs; none if the trace has no DAGs of several stages.

    Args:
        watched: Has the estimates that the policy was given.
        record: Of the run.
        trace: Trace of the run.
        mode: Source of estimates.
        stated: Whether jobs told how long they take.
    """
    measured = accuracy_of_dags(watched.decisive(mode, stated=stated), trace.jobs)
    if not measured.dags:
        return {}
    took = completion_ms(record.jobs, trace.jobs)
    errors = {"dag_error_p50": measured.p50, "dag_error_p90": measured.p90}
    return {
        "dag_jct_mean_h": fmean(took) / MILLIS_PER_HOUR,
        **(errors if measured.estimated else {}),
    }


def curves_of(watched: WatchedEstimates, trace: Trace) -> dict[str, Any]:
    """Pairs of a true and an estimated run time in seconds, a pair per wide job; and pilots.

    Of each job that had pilots: when it was given them, in hours, how many, and how many tasks it
    has.
    """
    return {
        "pilots": [
            (round(at / MILLIS_PER_HOUR, 4), pilots, tasks)
            for at, pilots, tasks in watched.pilots.values()
        ],
        "estimated_at_first_s": _pairs(watched.at_first, trace.jobs),
        "estimated_after_pilots_s": _pairs(watched.after_pilots, trace.jobs),
    }


def _by_sort(record: RunRecord, trace: Trace) -> dict[str, float]:
    """Mean completion times of thin and wide, small and large jobs."""
    sorts = {job.id: sort_of(job) for job in trace.jobs}
    times: dict[str, list[float]] = {}
    for job in record.jobs:
        times.setdefault(sorts[job.name], []).append(job.jct_ms / MILLIS_PER_HOUR)
    return {f"jct_{sort}_h": fmean(those) for sort, those in sorted(times.items())}


def _pairs(estimates: Mapping[str, int], jobs: Iterable[TraceJob]) -> list[tuple[float, float]]:
    wide_jobs = wide(jobs)
    return [
        (round(_whole_ms(wide_jobs[name]) / len(wide_jobs[name].tasks)) / 1_000, mean_ms / 1_000)
        for name, mean_ms in estimates.items()
    ]


def _whole_ms(job: TraceJob) -> float:
    """The work of all tasks of a job."""
    return sum(work_ms(job, index) for index in range(len(job.tasks)))


def _waited_ms(record: RunRecord) -> int:
    """For how long all tasks together waited, from the arrival of a job to their first start."""
    arrivals = {job.id: job.submitted_ms for job in record.jobs}
    starts: dict[RunId, int] = {}
    for occupancy in record.occupancies:
        starts[occupancy.run] = min(occupancy.from_ms, starts.get(occupancy.run, occupancy.from_ms))
    return sum(at - arrivals[job_of(run)] for run, at in starts.items())
