"""Order of the short tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView
from eva_wire.values.ids import JobId, Millis

Key = tuple[int, int, int, Millis, JobId]


def task_ms(job: JobView, unknown_ms: int) -> int:
    """How long one task of a job runs.

    Args:
        job: The job.
        unknown_ms: Run time assumed without an estimate.
    """
    return unknown_ms if job.progress.estimate is None else job.progress.estimate.mean_ms


def first_served(
    runs: Iterable[RunView], now: Millis, unknown_ms: int, age_cap: int | None
) -> Callable[[JobView], Key]:
    """Sort key for the order of jobs in the line.

    More urgent jobs come first; then jobs of which a task has waited for `age_cap` times its own
    run time, the longest first; then jobs with the least remaining work.

    Args:
        runs: The task runs of all jobs.
        now: The time.
        unknown_ms: See `task_ms`.
        age_cap: Factor described above; `None` to ignore waiting times.
    """
    waits: dict[JobId, Millis] = {}
    remaining: dict[JobId, list[int | None]] = {}
    for run in runs:
        rest_ms = None if run.remaining is None else run.remaining.standalone_ms(now)
        remaining.setdefault(run.job, []).append(rest_ms)
        if run.instance is None and run.since_ms is not None:
            waits[run.job] = min(run.since_ms, waits.get(run.job, run.since_ms))

    def key(job: JobView) -> Key:
        each = task_ms(job, unknown_ms)
        waited = now - waits.get(job.id, now)
        aged = waited if age_cap is not None and waited >= age_cap * each else 0
        work = sum(each if rest_ms is None else rest_ms for rest_ms in remaining.get(job.id, ()))
        work += each * job.array.unseen
        return -job.priority, -aged, work, job.submitted_ms, job.id

    return key
