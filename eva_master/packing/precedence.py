"""The order in which jobs get room: by priority, among equals by deadline, then by submission."""

from __future__ import annotations

from eva_master.model.planning.job_view import JobView
from eva_wire.values.ids import JobId, Millis

Precedence = tuple[int, int, int, int]


def among_all(job: JobView) -> Precedence:
    """The place of a job by priority and deadline; many jobs may have the same."""
    ahead, due = job.urgency.ahead, job.urgency.due
    if ahead is None:
        return -job.priority, 1, 0, 0
    return -job.priority, 0, ahead, 0 if due is None else due.at_ms


def precedence(job: JobView) -> tuple[Precedence, Millis, JobId]:
    """The place of a job; no two jobs have the same."""
    return among_all(job), job.submitted_ms, job.id
