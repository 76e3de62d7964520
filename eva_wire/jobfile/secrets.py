"""Secrets of a job: variables whose values the cluster keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from eva_wire.jobfile.schema import JobFile, TaskSection
from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.errors import Problem


def problems(
    document: Document,
    job: JobFile,
    sections: list[tuple[Path, TaskSection | None]],
    envs: Mapping[str, str],
    columns: Collection[str] = (),
) -> Iterator[Problem]:
    """Secrets that are named twice, or whose variables have values already.

    Args:
        document: The job file.
        job: The job that it states.
        sections: Each different task, and where it stands.
        envs: Variables that override the file's.
        columns: Variables that a table states for each task.
    """
    names: set[str] = set()
    for index, name in enumerate(job.secrets):
        if name in names:
            yield document.problem(("secrets", index), f"{name} is named twice", "remove one")
        names.add(name)
    places: list[tuple[Path, Mapping[str, str]]] = [(("envs",), job.envs)]
    places += [((*path, "envs"), task.envs) for path, task in sections if task is not None]
    hint = "remove it from `secrets`, or its value"
    for path, variables in places:
        for name in sorted(names & variables.keys()):
            message = f"{name} is one of the job's secrets, and has a value here"
            yield document.problem((*path, name), message, hint)
    for name in sorted(names & envs.keys()):
        message = f"{name} is one of the job's secrets, and was given a value beside the file"
        yield Problem(message, f"envs.{name}", hint="leave it out, or remove it from `secrets`")
    for name in sorted(names & set(columns)):
        message = f"{name} is one of the job's secrets, and a column of its table"
        index = job.secrets.index(name)
        yield document.problem(("secrets", index), message, "remove it here, or rename the column")
