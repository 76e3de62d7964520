"""Task runs that are as their job's submission made them: the journal has no rows of these.

A job of ten thousand tasks comes with ten thousand task runs, which say nothing that the job does
not say. A row is written when one of them changes for the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from eva_master.model.job import JobSpec
from eva_master.model.records import Job, TaskRun, untouched
from eva_wire.values.ids import JobId, Millis, RunId, run_id
from eva_wire.values.states import TERMINAL_JOB, RunState


@dataclass(frozen=True, slots=True)
class _Active:
    """A job that has not ended.

    Attributes:
        spec: As it is in the database.
        first: Task runs as they were at the job's submission.
        rows: For each task run that began with the job, whether it has a row.
    """

    spec: JobSpec
    first: tuple[Any, ...]
    rows: bytearray


class ActiveJobRows:
    """Rows of active jobs in the journal's database."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, _Active] = {}

    def loaded(
        self, jobs: Iterable[Job], begun: Mapping[JobId, int], runs: Iterable[TaskRun]
    ) -> None:
        """Note what was read.

        Args:
            jobs: The jobs.
            begun: How many task runs each of them began with.
            runs: Task runs with rows.
        """
        self._jobs = {
            job.id: _Active(job.spec, _state_at_first(job.submitted_ms), bytearray(begun[job.id]))
            for job in jobs
            if job.state not in TERMINAL_JOB
        }
        self.written((), runs, {})

    def has_spec(self, job: Job) -> bool:
        """Whether the job's spec is known to be written."""
        active = self._jobs.get(job.id)
        return active is not None and active.spec is job.spec

    def begun(self, jobs: Iterable[Job]) -> dict[JobId, int]:
        """How many task runs begin without rows, of each job of a commit that is new."""
        return {job.id: job.spec.size for job in jobs if job.id not in self._jobs}

    def runs_of(self, job: Job, begun: Mapping[JobId, int]) -> int:
        """How many task runs a job began with, new or known.

        Args:
            job: The job.
            begun: The answer of `begun` for its commit.
        """
        active = self._jobs.get(job.id)
        return begun.get(job.id, 0) if active is None else len(active.rows)

    def to_write(self, jobs: Iterable[Job], runs: Iterable[TaskRun]) -> list[TaskRun]:
        """The task runs of a commit that need a row, or have one that is to be replaced."""
        new = {
            job.id: _state_at_first(job.submitted_ms) for job in jobs if job.id not in self._jobs
        }
        return [run for run in runs if not self._needs_none(run, new)]

    def _needs_none(self, run: TaskRun, new: Mapping[JobId, tuple[Any, ...]]) -> bool:
        first = new.get(run.job)
        if first is None:
            active = self._jobs.get(run.job)
            if active is None or run.index >= len(active.rows) or active.rows[run.index]:
                return False
            first = active.first
        return _STATE(run) == first and _is_first(run)

    def written(
        self, jobs: Iterable[Job], runs: Iterable[TaskRun], new: Mapping[JobId, int]
    ) -> None:
        """Note what a commit has written.

        Args:
            jobs: All jobs of the commit.
            runs: The task runs that got rows.
            new: The answer of `begun` for that commit.
        """
        for job in jobs:
            active = self._jobs.get(job.id)
            if job.state in TERMINAL_JOB:
                self._jobs.pop(job.id, None)
            elif active is None or active.spec is not job.spec:
                rows = bytearray(new.get(job.id, 0)) if active is None else active.rows
                first = _state_at_first(job.submitted_ms)
                self._jobs[job.id] = _Active(job.spec, first, rows)
        for run in runs:
            active = self._jobs.get(run.job)
            if active is not None and run.index < len(active.rows):
                active.rows[run.index] = 1


def missing(
    jobs: Iterable[Job], begun: Mapping[JobId, int], runs: Iterable[TaskRun]
) -> Iterator[TaskRun]:
    """The task runs that jobs began with and that have no row, as their jobs tell of them.

    Args:
        jobs: The jobs.
        begun: How many task runs each of them began with.
        runs: Task runs with rows.
    """
    rows = {run.id for run in runs}
    for job in jobs:
        for index in job.spec.indices[: begun[job.id]]:
            if run_id(job.id, index) not in rows:
                yield untouched(job, index)


_WAITS_FOR = "waiting_for"
_STATE = attrgetter(
    *(
        field.name
        for field in fields(TaskRun)
        if field.name not in ("id", "job", "index", _WAITS_FOR)
    )
)
"""All fields of a task run but its name and why it waits."""


def _state_at_first(submitted_ms: Millis) -> tuple[Any, ...]:
    waiting = ((RunState.WAITING.value, int(submitted_ms)),)
    first: tuple[Any, ...] = _STATE(TaskRun(RunId(""), JobId(""), 0, waiting))
    return first


def _is_first(run: TaskRun) -> bool:
    """Whether it is the task's own run, no extra one."""
    return run.id == f"{run.job}/{run.index}"
