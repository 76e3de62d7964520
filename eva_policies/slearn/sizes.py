"""How much work jobs have, and which queue that makes them stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_master.model.planning.estimate import raised_ms
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView
from eva_policies.slearn.config import Config
from eva_wire.values.ids import Millis

_GOES_ON_FOR_PART = 4
"""A task that is older than expected is expected to go on for this part of its age."""


@dataclass(frozen=True, slots=True)
class JobWork:
    """The work of a job, in milliseconds of one task.

    Attributes:
        whole_ms: Work of all its tasks; `None` if unknown.
        left_ms: Remaining work; `None` if unknown.
        had_ms: Work that its tasks have had so far.
        waiting: Number of its waiting tasks.
        started_ms: When the last of its running tasks began to run; when the job came if none runs.
    """

    whole_ms: int | None
    left_ms: int | None
    had_ms: int
    waiting: int
    started_ms: Millis


def work_of(job: JobView, runs: Sequence[RunView], now: Millis) -> JobWork:
    """The work of a job, in total and remaining.

    Tasks that run for longer than expected raise the expectation for all.

    Args:
        job: The job.
        runs: Its task runs.
        now: The time.
    """
    ages = [max(0, now - run.running_since_ms) for run in runs if run.running_since_ms is not None]
    started = [run.running_since_ms for run in runs if run.running_since_ms is not None]
    had = job.progress.succeeded_ms + sum(ages)
    idle = sum(run.instance is None for run in runs)
    waiting = idle + job.array.unseen
    since = max(started, default=job.submitted_ms)
    if job.progress.estimate is None:
        return JobWork(None, None, had, waiting, since)
    if job.array.kinds:
        rest_ms = _left_of_kinds(job, runs, now)
        return JobWork(had + rest_ms, rest_ms, had, waiting, since)
    each = raised_ms(job.progress.estimate.mean_ms, job.progress.succeeded, ages)
    running = sum(max(each - age, age // _GOES_ON_FOR_PART) for age in ages)
    begun = len(runs) - idle - len(ages)
    rest_ms = running + each * (waiting + begun)
    return JobWork(each * max(job.array.size, 1), rest_ms, had, waiting, since)


def _left_of_kinds(job: JobView, runs: Sequence[RunView], now: Millis) -> int:
    """Remaining work of a job of several kinds of tasks, each with its own run time."""
    assert job.progress.estimate is not None
    usual = job.progress.estimate.mean_ms
    each = [usual if run.remaining is None else run.remaining.standalone_ms(now) for run in runs]
    waits = [rest_ms for run, rest_ms in zip(runs, each, strict=True) if run.instance is None]
    unseen = sum(waits) // len(waits) if waits else usual
    return sum(each) + unseen * job.array.unseen


def is_thin(config: Config, job: JobView) -> bool:
    """Whether a job has too few tasks for pilots; not if its user says how many it has."""
    return job.spec.array.pilots is None and job.array.size < config.thin


def queue_of(config: Config, work_ms: int) -> int:
    """The queue of a job with so much work: 0 for the smallest."""
    edge = config.first_queue_s * 1_000
    for queue in range(config.queues - 1):
        if work_ms < edge:
            return queue
        edge *= config.growth
    return config.queues - 1


def outgrows_ms(config: Config, work_ms: int) -> int | None:
    """With how much work a job is in the queue after the present one; `None` in the last one."""
    queue = queue_of(config, work_ms)
    last = queue == config.queues - 1
    return None if last else config.first_queue_s * 1_000 * config.growth**queue
