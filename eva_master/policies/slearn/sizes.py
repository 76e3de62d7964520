"""How much work jobs have, and which queue that makes them stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_master.model.ids import Millis
from eva_master.model.planning.estimate import raised_ms
from eva_master.model.planning.snapshot import JobView, RunView
from eva_master.policies.slearn.config import Config

_GOES_ON_FOR_PART = 4
"""A task that is older than expected is expected to go on for this part of its age."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a job, in milliseconds of one task.

    Attributes:
        whole_ms: Of all its tasks; `None` if nothing is known.
        left_ms: What is left of it, likewise.
        had_ms: What its tasks have had by now.
        waiting: How many tasks wait.
        started_ms: When the last one began to run that runs; when the job came if none does.
    """

    whole_ms: int | None
    left_ms: int | None
    had_ms: int
    waiting: int
    started_ms: Millis


def work_of(job: JobView, runs: Sequence[RunView], now: Millis) -> Work:
    """How much work a job has.

    Tasks that run already for longer than was expected raise what is expected of all.

    Args:
        job: The job.
        runs: Its task runs.
        now: The time.
    """
    ages = [max(0, now - it.running_since_ms) for it in runs if it.running_since_ms is not None]
    started = [it.running_since_ms for it in runs if it.running_since_ms is not None]
    had = job.succeeded_ms + sum(ages)
    idle = sum(it.instance is None for it in runs)
    waiting = idle + job.unseen
    since = max(started, default=job.submitted_ms)
    if job.estimate is None:
        return Work(None, None, had, waiting, since)
    if job.kinds:
        left = _left_of_kinds(job, runs, now)
        return Work(had + left, left, had, waiting, since)
    each = raised_ms(job.estimate.mean_ms, job.succeeded, ages)
    running = sum(max(each - age, age // _GOES_ON_FOR_PART) for age in ages)
    begun = len(runs) - idle - len(ages)
    left = running + each * (waiting + begun)
    return Work(each * max(job.tasks, 1), left, had, waiting, since)


def _left_of_kinds(job: JobView, runs: Sequence[RunView], now: Millis) -> int:
    """What is left of a job of several kinds of tasks: of each as long as its own kind takes."""
    assert job.estimate is not None
    usual = job.estimate.mean_ms
    each = [usual if it.remaining is None else it.remaining.left_ms(now) for it in runs]
    waits = [left for it, left in zip(runs, each, strict=True) if it.instance is None]
    unseen = sum(waits) // len(waits) if waits else usual
    return sum(each) + unseen * job.unseen


def is_thin(config: Config, job: JobView) -> bool:
    """Whether a job has too few tasks for pilots; not if its user says how many it has."""
    return job.pilots is None and job.tasks < config.thin


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
