"""Inputs of a job that are outputs of other jobs, once these are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eva_master.model.job import JobOutputs, JobSpec, different
from eva_wire.jobfile.outputs import TaskNames, references
from eva_wire.text.yamlfile import Document
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import Problem
from eva_wire.values.ids import JobId

SpecOf = Callable[[JobId], JobSpec | None]
"""Returns what a job is; `None` if there is no such job."""


def resolved(
    document: Document,
    inputs: Mapping[str, str],
    known: Mapping[str, JobId],
    spec_of: SpecOf,
) -> tuple[tuple[JobOutputs, ...], tuple[Problem, ...]]:
    """The outputs that are meant, by the names of the inputs, and what is wrong with them.

    Args:
        document: The job file.
        inputs: As they are written there.
        known: The jobs that references stand for. Others are left out, and so are those without an
            id, which are still to be submitted.
        spec_of: Tells what tasks a job has.
    """
    job_outputs: list[JobOutputs] = []
    problems: list[Problem] = []
    for path, name, reference in references(inputs):
        job = known.get(reference.job)
        spec = spec_of(job) if job else None
        if not job or spec is None:
            continue
        if not reference.task:
            several = len(spec.tasks) if _has_several(spec) else 0
            job_outputs.append(JobOutputs(name, job, 0, several, reference.path))
            continue
        tasks = _tasks_of(spec)
        index = tasks.index(reference.task)
        if index is None:
            problems.append(document.problem(path, *tasks.complaint(job, reference.task)))
        elif not spec.has(index):
            problems.append(document.problem(path, *_left_out(job, spec, reference.task)))
        else:
            job_outputs.append(JobOutputs(name, job, index, 0, reference.path))
    return tuple(sorted(job_outputs, key=lambda outputs: outputs.name)), tuple(problems)


def _left_out(job: JobId, spec: JobSpec, task: str) -> tuple[str, str]:
    """Tell that a retry does not do a task again, and what to do."""
    assert spec.retry is not None
    earlier = spec.retry.job
    return (
        f"job {job} has no task {task!r}: it does {spec.size:,} of the {len(spec.tasks):,} tasks"
        f" of {earlier}",
        f"read job:{earlier}/{task}/outputs, or those of a later job",
    )


def _has_several(spec: JobSpec) -> bool:
    """Whether the outputs of a job are one directory for each task; a forked job has one task."""
    return len(spec.tasks) > 1 or (spec.kind is JobKind.ARRAY and not spec.forked)


def _tasks_of(spec: JobSpec) -> TaskNames:
    if (table := spec.array.table) is not None:
        return TaskNames(len(spec.tasks), tuple(table.all_names))
    named = len(different(spec.tasks)) > 1 or spec.tasks[0].name
    return TaskNames(len(spec.tasks), tuple(task.name for task in spec.tasks) if named else ())
