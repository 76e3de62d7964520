"""The jobs after which a job is to run: which jobs references stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from eva_master.model.job import JobSpec
from eva_wire.jobfile.after import listed, named
from eva_wire.jobfile.schema import MOST_BEFORE, JobFile
from eva_wire.text.yamlfile import Document
from eva_wire.values.errors import Problem
from eva_wire.values.ids import JobId

_LISTED = 10


@dataclass(frozen=True, slots=True)
class Several:
    """Jobs that share the name by which one of them was meant.

    Attributes:
        jobs: Their ids, newest first; a few are enough.
    """

    jobs: Sequence[JobId]

    @classmethod
    def of(cls, jobs: Iterable[JobId]) -> Several | None:
        """Take a few of the jobs; `None` if there is only one, or none."""
        few = tuple(islice(jobs, _LISTED + 1))
        return cls(few) if len(few) > 1 else None

    def __str__(self) -> str:
        """Some of the ids, for a message."""
        more = " and more" if len(self.jobs) > _LISTED else ""
        return ", ".join(self.jobs[:_LISTED]) + more


Find = Callable[[Sequence[str]], Mapping[str, JobId | Several]]
"""Returns the jobs that references (ids or names) stand for; what is not there is left out."""


def ordered(spec: JobSpec, job: JobFile, jobs: Mapping[str, JobId]) -> JobSpec:
    """A job with those that it is to run after.

    Args:
        spec: The job without them.
        job: The job file.
        jobs: The jobs that it is to run after, by what the file calls them; without an id those
            that are still to be submitted.
    """
    ended = (
        jobs[reference] for _, reference, ended in listed(job) if ended and jobs.get(reference)
    )
    stage = replace(
        spec.stage,
        depends_on=tuple(dict.fromkeys(job_id for job_id in jobs.values() if job_id)),
        only_ended=tuple(dict.fromkeys(ended)),
    )
    return replace(spec, stage=stage)


def _contradictions(
    document: Document, job: JobFile, jobs: Mapping[str, JobId | Several]
) -> Iterator[Problem]:
    """Complain about jobs of which success is asked and is not."""
    entries = [
        (path, reference, jobs.get(reference) or reference, ended)
        for path, reference, ended in listed(job)
    ]
    succeed = {meant for _, _, meant, ended in entries if not ended}
    for path, reference, meant, ended in entries:
        if ended and meant in succeed:
            yield document.problem(
                path,
                f"{reference} is to have succeeded, and is only to have ended",
                "name it once, with `when: ended` or without",
            )


def found(
    document: Document, job: JobFile, find: Find | None
) -> tuple[dict[str, JobId], tuple[Problem, ...]]:
    """The jobs that a job is to run after, by what the file calls them, and what is wrong with it.

    There is neither without a way to find jobs.
    """
    references = named(job)
    if find is None or not references:
        return {}, ()
    different = list(dict.fromkeys(reference for _, reference in references))
    if len(different) > MOST_BEFORE:
        message = f"{len(different):,} jobs are to run before this one, at most {MOST_BEFORE:,} may"
        return {}, (
            document.problem(references[-1][0], message, "have some of them run in one job"),
        )
    ids = find(different)
    problems = tuple(
        document.problem(path, *complaint)
        for path, reference in references
        if (complaint := _complaint(reference, ids.get(reference)))
    )
    problems += tuple(_contradictions(document, job, ids))
    jobs = ((reference, ids.get(reference)) for reference in different)
    return {reference: job for reference, job in jobs if isinstance(job, str)}, problems


def _complaint(reference: str, job: JobId | Several | None) -> tuple[str, str] | None:
    """Problem with a reference to a job, and what to do; `None` if it stands for one job."""
    if isinstance(job, Several):
        return (
            f"{reference!r} is the name of several active jobs of yours: {job}",
            "write the id of the one that is meant",
        )
    if job is None:
        return (
            f"you have no job {reference!r}",
            "write the id or the name of a job of yours (`eva ls --all`), or of one in another"
            " file of the same `eva submit`",
        )
    return None
