"""Images of tasks: existing ones, or those that workers build from an uploaded directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from eva_wire.jobfile.schema import BuildSection, JobFile, TaskSection
from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.errors import Problem

Sections = Sequence[tuple[Path, TaskSection | None]]


@dataclass(frozen=True, slots=True)
class BuildContext:
    """A directory that images are built from.

    Attributes:
        directory: Its path as written in the job file.
        dockerfiles: Each requested Dockerfile, with the error message if it is not in the
            directory.
        missing: The error message if it is not a directory.
    """

    directory: str
    dockerfiles: Mapping[str, Problem]
    missing: Problem


def build_context(document: Document, job: JobFile, sections: Sections) -> BuildContext | None:
    """The directory to upload for a job's images; `None` if it builds none."""
    context: BuildContext | None = None
    dockerfiles: dict[str, Problem] = {}
    for path, task in sections:
        section = section_of(job, task)
        if section is None:
            continue
        key = (*path, "build") if task and task.build else ("build",)
        if context is None:
            directory = _directory(job, section)
            problem = document.problem(
                (*key, "context"),
                f"{directory!r} is not a directory",
                "it is relative to the job file",
            )
            context = BuildContext(directory, dockerfiles, problem)
        dockerfiles.setdefault(
            section.dockerfile,
            document.problem(
                (*key, "dockerfile"),
                f"there is no {section.dockerfile!r} in the build context {context.directory!r}",
                "the path is relative to the context",
            ),
        )
    return context


def image_problems(
    document: Document, job: JobFile, sections: Sections, *, containers: bool = True
) -> Iterator[Problem]:
    """Find the mistakes in the images of a job.

    Args:
        document: The file.
        job: Its parsed content.
        sections: Its tasks and their paths in the file.
        containers: Whether the cluster runs tasks in containers.
    """
    places: list[tuple[Path, JobFile | TaskSection]] = [((), job)]
    places += [(path, task) for path, task in sections if task]
    directories: list[str] = []
    for path, section in places:
        if section.image and section.build:
            yield document.problem(
                (*path, "build"), "'image' and 'build' exclude each other", "keep one of them"
            )
        key = "image" if section.image else "build" if section.build else ""
        if key and not containers:
            yield document.problem(
                (*path, key),
                "this cluster runs tasks as plain processes, which have no image",
                "remove it, or configure the cluster to run containers: local.runtime: docker",
            )
        if section.build:
            directories.append(_directory(job, section.build))
            if directories[-1] != directories[0]:
                yield document.problem(
                    (*path, "build", "context"),
                    f"a second build context beside {directories[0]!r}",
                    "use one directory with several Dockerfiles, or submit several jobs",
                )


def section_of(job: JobFile, task: TaskSection | None) -> BuildSection | None:
    """How the image of a task or else of its job is built; `None` if it is not built."""
    return task.build if task and (task.image or task.build) else job.build


def _directory(job: JobFile, section: BuildSection) -> str:
    stated = section.context or (job.build and job.build.context) or "."
    return str(PurePosixPath(stated))
