"""The worth of a job, in job files: `value`."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.adapters.jobfile.schema import JobFile
from eva_master.adapters.text.yamlfile import Document
from eva_master.model.accounting.worth import Decay, Worth
from eva_master.model.errors import Problem


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Contradictions between keys that are valid one by one."""
    if job.value is not None and job.value.loses is not None and job.value.halves is not None:
        message = "a job loses so much an hour or halves its worth, not both"
        yield document.problem(("value", "halves"), message, "remove it, or `loses`")


def worth_of(job: JobFile) -> Worth | None:
    """The worth that the file states, `None` without one."""
    said = job.value
    if said is None:
        return None
    if said.halves is not None:
        return Worth(said.worth, Decay.HALVING, span_ms=said.halves)
    return Worth(said.worth, loses_per_hour=said.loses or 0)
