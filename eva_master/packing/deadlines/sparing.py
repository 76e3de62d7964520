"""Jobs that are not suspended, since they would be late by it."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView
from eva_wire.values.ids import Millis


def would_be_late(job: JobView, comers: Iterable[RunView], now: Millis) -> bool:
    """Whether a job would be late for its deadline if others had its room until they end.

    Args:
        job: A job that has room.
        comers: Task runs that would have it.
        now: The time.
    """
    return job.urgency.due is not None and job.urgency.due.slack_ms < takes_ms(comers, now)


def takes_ms(runs: Iterable[RunView], now: Millis) -> int:
    """For how long task runs take room at least; 0 if that is not known."""
    works = (run.remaining for run in runs)
    return max((work.standalone_ms(now) for work in works if work is not None), default=0)
