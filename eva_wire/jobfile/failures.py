"""Consequences of a failure, in job files: `on_failure`, `retry_on`, `fail_on`."""

from __future__ import annotations

from collections.abc import Iterator

from eva_wire.jobfile.schema import JobFile
from eva_wire.text.yamlfile import Document
from eva_wire.values.bounds import ASKS_FOR_RETRY
from eva_wire.values.errors import Problem


def problems(document: Document, job: JobFile) -> Iterator[Problem]:
    """Problems between keys that are right one by one."""
    if job.on_failure is not None and job.kind == "gang":
        message = "all tasks of a gang run or none does, so none goes on without one that failed"
        yield document.problem(("on_failure",), message, "write `kind: array`, or remove it")
    if job.retry_on and not job.retries:
        message = "with `retries: 0` nothing is retried, whatever the exit code"
        yield document.problem(("retry_on",), message, "write `retries: 1` or more, or remove it")
    if both := sorted(set(job.retry_on) & set(job.fail_on)):
        message = f"{', '.join(map(str, both))} is in `retry_on` as well"
        yield document.problem(("fail_on",), message, "leave it in one of the two")
    if ASKS_FOR_RETRY in job.fail_on:
        message = f"a program that exits with {ASKS_FOR_RETRY} asks to be retried"
        yield document.problem(("fail_on",), message, "leave it out, and use another code")
