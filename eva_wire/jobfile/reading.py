"""Reads job files: what is right or wrong in one whatever a cluster offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from eva_wire.jobfile import (
    after,
    deadlines,
    elastic,
    failures,
    forks,
    other_tools,
    secrets,
    worth,
)
from eva_wire.jobfile.caller import fill, names_of
from eva_wire.jobfile.images import BuildContext, build_context, image_problems
from eva_wire.jobfile.scalars import check_name, check_value, check_variable, environment_problems
from eva_wire.jobfile.schema import TEXT_UNDER, JobFile, TaskSection
from eva_wire.jobfile.table import Table, with_table
from eva_wire.text import yamlfile
from eva_wire.text.cancellation import NEVER_CANCELLED, Cancellation
from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.bounds import JobKind, most_tasks
from eva_wire.values.errors import InvalidJob, Problem

MOST_BYTES = 1024 * 1024
"""Size of the largest job file."""


def check_job(
    text: str,
    *,
    file_name: str,
    envs: Mapping[str, str] | None = None,
    name: str | None = None,
    table: Table | None = None,
    caller: Mapping[str, str] | None = None,
) -> None:
    """Find what is wrong with a job whatever the cluster offers: syntax, keys, figures.

    Args:
        text: The file as the user wrote it.
        file_name: Its name, for messages.
        envs: Variables that override the file's.
        name: Used instead of the file's name.
        table: Table whose rows are the tasks.
        caller: Values of the file's variables that have none; `None` where they make no difference.

    Raises:
        InvalidJob: With every problem that was found.
    """
    document, job = read_document(text, file_name, caller=caller, envs=envs)
    job, problems = as_submitted(document, job, table, envs or {}, name)
    problems += [
        *image_problems(document, job, sections_of(job)),
        *large_environments(document, job, table, envs or {}),
    ]
    if problems:
        raise yamlfile.invalid(InvalidJob, file_name, problems)


def workdir_of(text: str) -> str | None:
    """The directory that a job file wants uploaded, as it is written there.

    Raises:
        InvalidJob: The file cannot be accepted.
    """
    _, job = read_document(text, "job file")
    return job.workdir


def commands_of(text: str) -> tuple[str, ...]:
    """The commands of all tasks of a job file; raises `InvalidJob` if it cannot be accepted."""
    _, job = read_document(text, "job file")
    commands = [job.run, *(task.run for _, task in sections_of(job) if task is not None)]
    return tuple(dict.fromkeys(run for run in commands if run))


def caller_variables_of(text: str) -> Sequence[str]:
    """The variables of a job file that have no value and take that of the caller.

    Raises:
        InvalidJob: The text is no YAML.
    """
    return names_of(_load(text, "job file"))


def predecessors_of(
    text: str, *, file_name: str = "job file", name: str | None = None
) -> after.Predecessors:
    """The jobs after which a job is to run.

    Args:
        text: The file as the user wrote it.
        file_name: Its name, for messages.
        name: Used instead of the file's name.

    Raises:
        InvalidJob: The file cannot be accepted.
    """
    document, job = read_document(text, file_name)
    return after.predecessors(document, job, file_name, name or job.name or "")


def build_context_of(text: str, *, file_name: str = "job file") -> BuildContext | None:
    """The directory that a job file wants uploaded for its images, `None` if it has none made.

    Raises:
        InvalidJob: The file cannot be accepted.
    """
    document, job = read_document(text, file_name)
    return build_context(document, job, sections_of(job))


def job_schema() -> dict[str, Any]:
    """JSON Schema of the job file, for editors."""
    schema = JobFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def read_document(
    text: str,
    file_name: str,
    cancelled: Cancellation = NEVER_CANCELLED,
    *,
    caller: Mapping[str, str] | None = None,
    envs: Mapping[str, str] | None = None,
) -> tuple[Document, JobFile]:
    """Read a job file by its schema; contradictions between keys are not looked for.

    Args:
        text: The file as the user wrote it.
        file_name: Its name, for messages.
        cancelled: Tells when the result is no longer wanted.
        caller: Values of the file's variables that have none; `None` where values make no
            difference.
        envs: Variables that override the file's.

    Raises:
        Cancelled: The caller has gone away.
        InvalidJob: The text is no YAML, or breaks the schema.
    """
    document = _load(text, file_name, cancelled)
    cancelled.check()
    problems = fill(document, caller, envs or {})
    try:
        job = JobFile.model_validate(document.value)
    except ValidationError as failure:
        problems += yamlfile.problems_of(failure, document, JobFile, other_tools.advice)
        raise yamlfile.invalid(InvalidJob, file_name, problems) from None
    if problems:
        raise yamlfile.invalid(InvalidJob, file_name, problems)
    return document, job


def _load(text: str, file_name: str, cancelled: Cancellation = NEVER_CANCELLED) -> Document:
    return yamlfile.load(
        text,
        file_name=file_name,
        error=InvalidJob,
        text_under=TEXT_UNDER,
        most_bytes=MOST_BYTES,
        cancelled=cancelled,
    )


def as_submitted(
    document: Document,
    job: JobFile,
    table: Table | None,
    envs: Mapping[str, str],
    name: str | None,
) -> tuple[JobFile, list[Problem]]:
    """A job with what came beside its file, and faults that it has on any cluster.

    Args:
        document: The file.
        job: Its content.
        table: Table whose rows are the tasks, if any.
        envs: Variables that override the file's.
        name: Used instead of the file's name.
    """
    job, contradictions = with_table(document, job, table, envs)
    problems = [*override_problems(envs, name), *contradictions]
    columns = () if table is None else table.columns
    problems += secrets.problems(document, job, sections_of(job), envs, columns)
    return job, problems + job_problems(document, job, name)


def large_environments(
    document: Document, job: JobFile, table: Table | None, envs: Mapping[str, str]
) -> Iterator[Problem]:
    """Complaints about tasks whose variables take more room than the kernel has for them."""
    row_bytes = 0 if table is None else table.largest
    return environment_problems(document, job.envs, own_variables(job), envs, row_bytes)


def override_problems(envs: Mapping[str, str], name: str | None) -> Iterator[Problem]:
    """Check what came beside the file by the file's rules."""
    checks: list[tuple[str, Callable[[str], str], str]]
    checks = [(f"envs.{key}", check_variable, key) for key in envs]
    checks += [(f"envs.{key}", check_value, value) for key, value in envs.items()]
    if name:
        checks.append(("name", check_name, name))
    for key, check, value in checks:
        try:
            check(value)
        except ValueError as refusal:
            context = getattr(refusal, "context", None) or {}
            yield Problem(str(refusal), key, hint=context.get("hint", ""))


def job_problems(document: Document, job: JobFile, name: str | None) -> list[Problem]:
    """Contradictions between keys that are valid one by one."""
    problems = []
    if not (name or job.name):
        problems.append(document.problem(("name",), "'name' is missing"))
    names: set[str] = set()
    for path, task in sections_of(job):
        if not (job.run or (task and task.run)):
            problems.append(document.problem((*path, "run"), "'run' is missing"))
        if task and task.name in names:
            problems.append(
                document.problem((*path, "name"), f"there is another task {task.name!r}")
            )
        names.add(task.name if task else "")
    if job.concurrency is not None and job.kind == "gang":
        message = "all tasks of a gang run or none does, so their number cannot be limited"
        hint = "write `kind: array`, or remove it"
        problems.append(document.problem(("concurrency",), message, hint))
    most = most_tasks(JobKind(job.kind))
    if isinstance(job.tasks, int) and job.tasks > most:
        message = f"a {job.kind} has at most {most:,} tasks"
        problems.append(document.problem(("tasks",), message, "write `kind: array`"))
    problems += elastic.problems(document, job)
    if job.stragglers == "duplicate" and job.kind == "gang":
        message = "the tasks of a gang wait for each other, so none of them can run twice"
        hint = "write `kind: array`, or remove it"
        problems.append(document.problem(("stragglers",), message, hint))
    if job.split_batch and job.kind == "array":
        message = "the tasks of an array have no batch in common, so there is none to divide"
        hint = "write `kind: gang`, or remove it"
        problems.append(document.problem(("split_batch",), message, hint))
    problems += failures.problems(document, job)
    problems += _pilots_problems(document, job)
    problems += forks.problems(document, job)
    problems += worth.problems(document, job)
    problems += deadlines.problems(document, job)
    problems += after.self_problems(document, job, name or job.name or "")
    return problems


def _pilots_problems(document: Document, job: JobFile) -> Iterator[Problem]:
    if job.pilots is None:
        return
    tasks = len(job.tasks) if isinstance(job.tasks, list) else elastic.most_of(job)
    if job.kind == "gang":
        message = "the tasks of a gang run together, so none of them can run before the others"
        yield document.problem(("pilots",), message, "write `kind: array`, or remove it")
    elif job.pilots > tasks:
        message = f"{job.pilots:,} tasks are to run first, and the job has {tasks:,}"
        yield document.problem(("pilots",), message, f"write at most {tasks:,}, or remove it")


def sections_of(job: JobFile) -> list[tuple[Path, TaskSection | None]]:
    """Each different task and where it stands; `None` for the one that a count repeats."""
    if not isinstance(job.tasks, list):
        return [((), None)]
    return [(("tasks", index), task) for index, task in enumerate(job.tasks)]


def own_variables(job: JobFile) -> list[tuple[Path, Mapping[str, str]]]:
    """Where each different task stands, and its own variables."""
    return [(path, task.envs if task else {}) for path, task in sections_of(job)]
