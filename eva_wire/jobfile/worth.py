"""The worth of a job, in job files: `value`."""

from __future__ import annotations

from collections.abc import Iterator

from eva_wire.jobfile.schema import JobFile
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Contradictions between keys that are valid one by one."""
    if job.value is not None and job.value.loses is not None and job.value.halves is not None:
        message = "a job loses so much an hour or halves its worth, not both"
        yield document.problem(("value", "halves"), message, "remove it, or `loses`")
