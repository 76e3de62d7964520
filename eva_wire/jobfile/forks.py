"""Trainings in job files: `forks`, `merge`, sizes of models, `split_batch` and `ps`."""

from __future__ import annotations

from collections.abc import Iterator

from eva_wire.jobfile.schema import JobFile
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Contradictions between keys that are valid one by one."""
    if job.merge is not None and job.forks == 1:
        message = "only forks are merged, and the job has none"
        yield document.problem(("merge",), message, "write `forks: 2` or more, or remove it")
    if job.forks == 1:
        return
    if job.kind == "array":
        message = "the tasks of an array train nothing together, so it has no forks"
        yield document.problem(("forks",), message, "write `kind: gang`, or remove it")
    elif job.tasks != 1:
        message = "a gang of several tasks cannot be forked yet"
        yield document.problem(("forks",), message, "write `tasks: 1`, or remove it")
    if job.total_steps is None:
        message = "the steps of forks are added up until the job has done all, and none are stated"
        yield document.problem(("forks",), message, "write `total_steps` too, or remove it")
    if not job.reports_steps:
        message = "the steps of forks are counted, and the program reports none"
        yield document.problem(("forks",), message, "remove it, or `reports_steps: false`")
