"""Names by which users call a job: its id, or its name.

The id comes first. A name stands for the caller's newest active job of that name, else for the
newest one. Where a job is to be changed, or waited for, a name that several active jobs have is
refused. Another user's job is called by its id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from eva_master.adapters.resolving.predecessors import Several
from eva_master.model.job import JobSpec
from eva_master.model.records import Ended, Job
from eva_master.ports.reading import Archive, JobRecord, ReadModel, TaskPage
from eva_wire.values.errors import AmbiguousName, NotFound
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB

_COMING = JobId("")
_LISTED = 10
"""Ids in a message."""


def only_job(model: ReadModel, owner: str, reference: str) -> Job | None:
    """A job that is known by its id, or the owner's that a name stands for, to be changed.

    Raises:
        AmbiguousName: Several active jobs of the owner have the name.
    """
    job = model.find(owner, reference)
    if job is None or job.id == reference:
        return job
    if (active := _several(model, owner, reference)) is not None:
        raise AmbiguousName(
            f"{reference!r} is the name of several active jobs of yours: {active}",
            hint="name the job by its id",
        )
    return job


def _several(model: ReadModel, owner: str, name: str) -> Several | None:
    """The active jobs of an owner that share a name."""
    return Several.of(job.id for job in model.active_named(name, owner))


def archived(archive: Archive, owner: str, reference: str, *page: TaskPage) -> JobRecord:
    """A job that has ended, by its id or name; takes time.

    Args:
        archive: Has the job.
        owner: Owner whose jobs may be named.
        reference: The id or name.
        page: Which of its tasks; those that are shown if it is not given.

    Raises:
        NotFound: There is none.
    """
    record = archive.job(JobId(reference), *page) or archive.newest_named(owner, reference, *page)
    if record is None or record.job.state not in TERMINAL_JOB:  # younger than the model
        raise NotFound(
            f"there is no job {reference!r}",
            hint="`eva ls --all` shows all jobs; another user's job is named by its id",
        )
    return record


def absent(model: ReadModel, reference: str, error: NotFound) -> NotFound:
    """Complete a complaint about a job by the ids of other users' active jobs of that name."""
    others = list(islice(model.active_named(reference), _LISTED + 1))
    if not others:
        return error
    jobs = [f"{job.id} ({job.spec.owner})" for job in others[:_LISTED]]
    more = " and more" if len(others) > _LISTED else ""
    return NotFound(
        f"you have no job {reference!r}; other users have {', '.join(jobs)}{more}",
        hint="name another user's job by its id",
    )


class PredecessorFinder:
    """Finds an owner's jobs by ids or names; what belongs to others is as if it were not there.

    Finding takes time; it is done in a thread that may block.

    Args:
        model: Has what is active, and what ended lately.
        archive: Has the rest.
        owner: Owner whose jobs are found.
        given: Other references that some of the references stand for, by the caller.
        coming: Names of jobs that are taken to exist.
    """

    def __init__(
        self,
        model: ReadModel,
        archive: Archive,
        owner: str,
        *,
        given: Mapping[str, str] | None = None,
        coming: Collection[str] = (),
    ) -> None:
        self._model = model
        self._archive = archive
        self._owner = owner
        self._given = given or {}
        self._coming = frozenset(coming)
        self._ended: dict[JobId, Ended] = {}

    def __call__(self, references: Sequence[str]) -> dict[str, JobId | Several]:
        """The ids of the jobs that there are, by the references."""
        coming = {reference: _COMING for reference in references if reference in self._coming}
        meant = {
            reference: self._given.get(reference, reference)
            for reference in references
            if reference not in coming
        }
        named = dict(self._known(set(meant.values())))
        ids: dict[str, JobId | Several] = {
            name: job.id if isinstance(job, Job) else job for name, job in named.items()
        }
        if rest := sorted(set(meant.values()) - ids.keys()):
            for reference, (name, end) in self._archive.owned(self._owner, rest).items():
                ids[reference] = name
                if end is not None:
                    self._ended[name] = end
        return coming | {
            reference: ids[stands_for]
            for reference, stands_for in meant.items()
            if stands_for in ids
        }

    def spec_of(self, job: JobId) -> JobSpec | None:
        """Spec of a job that was found; `None` if it is still to come."""
        active = self._model.jobs.get(job)
        if active is not None:
            return active.spec
        record = self._archive.job(job, TaskPage(0, 1)) if job else None
        return None if record is None else record.job.spec

    def ended(self, jobs: Iterable[JobId]) -> tuple[Ended, ...]:
        """How those of the jobs ended that were found and have ended."""
        return tuple(self._ended[job] for job in jobs if job in self._ended)

    def _known(self, references: Iterable[str]) -> Iterator[tuple[str, Job | Several]]:
        """The jobs among those of the model."""
        for reference in references:
            job = self._model.jobs.get(JobId(reference))
            if job is None or job.spec.owner != self._owner:
                if (active := _several(self._model, self._owner, reference)) is not None:
                    yield reference, active
                    continue
                job = self._model.newest_named(self._owner, reference)
            if job is not None:
                if job.state in TERMINAL_JOB:
                    self._ended[job.id] = Ended.of(job)
                yield reference, job
