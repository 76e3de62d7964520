"""Inputs that are the outputs of another job: ``job:JOB[/TASK]/outputs[/PATH]``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from eva_master.adapters.text.yamlfile import Document, Path, shortened
from eva_master.model.errors import Problem
from eva_master.model.ids import JobId
from eva_master.model.job import JobKind, JobOutputs, JobSpec

SpecOf = Callable[[JobId], JobSpec | None]
"""Returns what a job is; `None` if there is no such job."""

_PREFIX = "job:"
_DIRECTORY = "outputs"
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INDEX = re.compile(r"[0-9]{1,9}")
_LONGEST_PATH = 900
"""Bytes: keys of the object store have 1,024 in all."""
_FORM = "write job:JOB/outputs, job:JOB/TASK/outputs for one task's, or a path below either"


@dataclass(frozen=True, slots=True)
class Reference:
    """An input as it is written.

    Attributes:
        job: Id or name of the job.
        task: Index or name of one of its tasks; empty for all.
        path: Below the outputs; empty for all of them.
    """

    job: str
    task: str = ""
    path: str = ""

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Read an input; `None` if it is a URL.

        Raises:
            ValueError: It is meant for a job's outputs and is not written so.
        """
        if not text.startswith(_PREFIX):
            return None
        job, *rest = text.removeprefix(_PREFIX).split("/")
        all_tasks = rest[:1] == [_DIRECTORY]
        task = "" if all_tasks or not rest else rest.pop(0)
        if not (_JOB.fullmatch(job) and rest[:1] == [_DIRECTORY] and (all_tasks or _is_name(task))):
            raise ValueError(f"{shortened(text)!r} names no outputs of a job; {_FORM}")
        names = rest[1:-1] if rest[-1] == "" else rest[1:]
        path = "/".join(names)
        if not all(map(_is_name, names)) or len(path.encode(errors="replace")) > _LONGEST_PATH:
            raise ValueError(
                f"{shortened(text)!r}: no path below outputs; empty names, '.' and '..' have no"
                f" place in one, and it has at most {_LONGEST_PATH} bytes"
            )
        return cls(job, task, path)


def _is_name(text: str) -> bool:
    return text not in {"", ".", ".."} and text.isprintable()


def references(inputs: Mapping[str, str]) -> Iterator[tuple[Path, str, Reference]]:
    """The inputs that are outputs of jobs: where each stands, its name, and what it says."""
    for name, text in inputs.items():
        if (reference := Reference.of(text)) is not None:
            yield ("storage", "inputs", name), name, reference


def urls(inputs: Mapping[str, str]) -> dict[str, str]:
    """The other inputs, by their names."""
    return {name: url for name, url in inputs.items() if Reference.of(url) is None}


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
    found: list[JobOutputs] = []
    problems: list[Problem] = []
    for path, name, reference in references(inputs):
        job = known.get(reference.job)
        spec = spec_of(job) if job else None
        if not job or spec is None:
            continue
        if not reference.task:
            tasks = len(spec.tasks) if _has_several(spec) else 0
            found.append(JobOutputs(name, job, 0, tasks, reference.path))
        elif (index := _index(spec, reference.task)) is not None:
            found.append(JobOutputs(name, job, index, 0, reference.path))
        else:
            last = len(spec.tasks) - 1
            has = "one task, number 0" if last == 0 else f"{last + 1:,} tasks, 0 to {last}"
            message = f"job {job} has no task {reference.task!r}: it has {has}"
            problems.append(document.problem(path, message, f"`eva status {job}` shows its tasks"))
    return tuple(sorted(found, key=lambda outputs: outputs.name)), tuple(problems)


def _has_several(spec: JobSpec) -> bool:
    """Whether the outputs of a job are one directory for each task; a forked job has one task."""
    return len(spec.tasks) > 1 or (spec.kind is JobKind.ARRAY and spec.forks == 1)


def _index(spec: JobSpec, task: str) -> int | None:
    if _INDEX.fullmatch(task):
        return int(task) if int(task) < len(spec.tasks) else None
    return next((at for at, one in enumerate(spec.tasks) if one.name == task), None)


def named_by(inputs: Mapping[str, str]) -> Sequence[tuple[Path, str]]:
    """Ids and names of the jobs whose outputs are inputs, with the places where they stand."""
    return [(path, reference.job) for path, _, reference in references(inputs)]
