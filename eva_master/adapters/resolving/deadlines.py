"""The deadline of a job, as its file states it."""

from __future__ import annotations

from eva_master.model.job import Deadline
from eva_wire.jobfile.schema import JobFile


def deadline_of(job: JobFile) -> Deadline | None:
    """The deadline that the file states, `None` without one."""
    said = job.deadline
    if said is None:
        return None
    at_ms = None if said.at is None else round(said.at.timestamp() * 1_000)
    return Deadline(at_ms, said.within, fails=job.deadline_miss == "fail")
