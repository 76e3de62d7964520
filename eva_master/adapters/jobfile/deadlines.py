"""When a job is to be done, in job files: `deadline`."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.adapters.jobfile.schema import JobFile
from eva_master.adapters.text.yamlfile import Document
from eva_master.model.errors import Problem
from eva_master.model.job import Deadline


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """What is wrong between keys that are right one by one."""
    if job.spot_wait and job.spot not in ("allowed", "only"):
        hint = "write `spot: allowed`, or remove it"
        yield document.problem(("spot_wait",), "the job may run on no spot instance", hint)
    if job.deadline is None and job.deadline_miss == "fail":
        hint = "write a `deadline`, or remove it"
        yield document.problem(("deadline_miss",), "the job has no deadline to miss", hint)
    said = job.deadline
    if said is None:
        return
    if said.at is None and said.within is None:
        hint = "write `deadline: 2030-01-31T18:00:00+01:00`, or `deadline: {within: 36h}`"
        yield document.problem(("deadline",), "a deadline is a time", hint)
    elif said.at is not None and said.within is not None:
        message = "a job is to be done at a time or within one, not both"
        yield document.problem(("deadline", "within"), message, "remove it, or `at`")


def deadline_of(job: JobFile) -> Deadline | None:
    """What the file says of when the job is to be done, `None` if it says nothing."""
    said = job.deadline
    if said is None:
        return None
    at_ms = None if said.at is None else round(said.at.timestamp() * 1_000)
    return Deadline(at_ms, said.within, fails=job.deadline_miss == "fail")
