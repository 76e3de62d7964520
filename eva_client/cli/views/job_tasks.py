"""The tasks of a job, of which a message may have some: how many there are, and in which states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Job, Task

STATES = ("succeeded", "failed", "cancelled", "running", "stopping", "starting", "waiting")
"""In the order in which they are told."""
ENDED = ("succeeded", "failed", "cancelled")
"""The last states of a job."""


def number(job: Job) -> int:
    """How many tasks a job has. A master that does not say so tells of all of them."""
    return job.task_count or shown(job)


def shown(job: Job) -> int:
    """How many tasks a message tells of, each with all of its runs."""
    return len({task.index for task in job.tasks})


def foremost(message: Job) -> list[Task]:
    """One run of each task: that which has succeeded, else the one that has got furthest."""
    best: dict[int, Task] = {}
    for task in message.tasks:
        furthest = best.get(task.index)
        if furthest is None or _got(task) > _got(furthest):
            best[task.index] = task
    return list(best.values())


def _got(task: Task) -> tuple[bool, int]:
    return task.state == "succeeded", task.steps


def counted(job: Job) -> Mapping[str, int]:
    """How many of a job's tasks are in each state."""
    return job.tasks_by_state or Counter(task.state for task in foremost(job))


def in_words(job: Job) -> str:
    """The counts as text, such as ``3 succeeded, 2 running``."""
    counts = counted(job)
    return ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts.get(state))


def why_waiting(job: Job) -> str:
    """Why tasks wait, empty if none does or nobody knows."""
    reason = next((task.waiting_for for task in job.tasks if task.waiting_for), "")
    return reason or next(iter(job.waiting_for), "")


def is_over(job: Job, task: Task) -> bool:
    """Whether nothing is left of a task's work: it has succeeded, or its array goes on without it.

    Tasks fail for good before their job ends in arrays alone.
    """
    return task.state == "succeeded" or (task.state == "failed" and job.state not in ENDED)


def count_over(job: Job) -> int:
    """How many of a job's tasks are over, see `is_over`."""
    counts = counted(job)
    failed = 0 if job.state in ENDED else counts.get("failed", 0)
    return counts.get("succeeded", 0) + failed


def share_done(job: Job) -> float | None:
    """The share of a job's work that is done; `None` if nobody knows."""
    total = number(job)
    if total > shown(job):
        return count_over(job) / total
    if total <= 1 and not any(task.total_steps for task in job.tasks):
        return None
    shares = (
        1.0
        if is_over(job, task)
        else min(1.0, task.steps / task.total_steps)
        if task.total_steps
        else 0.0
        for task in foremost(job)
    )
    return sum(shares) / total
