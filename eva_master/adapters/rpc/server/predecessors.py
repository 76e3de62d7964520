"""Finds the jobs after which a job is to run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from eva_master.model.ids import JobId
from eva_master.model.records import Ended, Job
from eva_master.model.states import TERMINAL_JOB
from eva_master.ports.reading import Archive, ReadModel

_COMING = JobId("")


class PredecessorFinder:
    """Finds an owner's jobs by ids or names; what belongs to others is as if it were not there.

    Finding takes time; it is done in a thread that may block.

    Args:
        model: Has what is active, and what ended lately.
        archive: Has the rest.
        owner: Whose jobs are found.
        given: What the caller says that some of the references stand for: other references.
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

    def __call__(self, references: Sequence[str]) -> dict[str, JobId]:
        """The ids of the jobs that there are, by the references."""
        found = {one: _COMING for one in references if one in self._coming}
        meant = {one: self._given.get(one, one) for one in references if one not in found}
        known = {one: job for one in set(meant.values()) if (job := self._known(one)) is not None}
        for job in known.values():
            if job.state in TERMINAL_JOB:
                self._ended[job.id] = Ended.of(job)
        ids = {one: job.id for one, job in known.items()}
        if absent := sorted(set(meant.values()) - ids.keys()):
            for one, (name, end) in self._archive.owned(self._owner, absent).items():
                ids[one] = name
                if end is not None:
                    self._ended[name] = end
        return found | {
            one: ids[stands_for] for one, stands_for in meant.items() if stands_for in ids
        }

    def ended(self, jobs: Iterable[JobId]) -> tuple[Ended, ...]:
        """How those of the jobs ended that were found and have ended."""
        return tuple(self._ended[job] for job in jobs if job in self._ended)

    def _known(self, reference: str) -> Job | None:
        job = self._model.jobs.get(JobId(reference))
        if job is not None and job.spec.owner == self._owner:
            return job
        return self._model.newest_named(self._owner, reference)
