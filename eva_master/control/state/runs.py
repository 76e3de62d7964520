"""The task runs of all jobs, of which only those are kept to which something has happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar, overload

from eva_master.model.job import TaskSpec
from eva_master.model.records import Job, TaskRun, untouched
from eva_wire.values.ids import JobId, RunId, run_id
from eva_wire.values.states import RunState

_Default = TypeVar("_Default")
_DIGITS = 9
_REMEMBERED = 16_384
"""Derived records that are kept at most."""


class WaitReasons(Protocol):
    """The common reasons for which tasks of one job wait."""

    def why(self, task: TaskSpec) -> str:
        """The reason for which a task without a record waits; empty if no plan had to state one."""
        ...


class Runs(Mapping[RunId, TaskRun]):
    """Every task run of every known job, by id.

    The run of a task without a record is derived from the job on request. So an array of a million
    tasks takes the memory of its placed tasks only.

    Args:
        jobs: The jobs that are known.
        touched: The task runs with a record.
        told: Reasons for which tasks of each job wait.
    """

    __slots__ = ("_derived_before", "_jobs", "_told", "touched")

    def __init__(
        self,
        jobs: Mapping[JobId, Job],
        touched: Mapping[RunId, TaskRun],
        told: Mapping[JobId, WaitReasons],
    ) -> None:
        self._jobs = jobs
        self._told = told
        self.touched = touched
        self._derived_before: dict[RunId, TaskRun] = {}
        """Derived runs of waiting tasks, which plan after plan is shown."""

    def __getitem__(self, run: RunId) -> TaskRun:
        record = self.touched.get(run)
        if record is None:
            record = self._derived(run)
            if record is None:
                raise KeyError(run)
        return record

    @overload
    def get(self, run: RunId, /) -> TaskRun | None: ...

    @overload
    def get(self, run: RunId, default: _Default, /) -> TaskRun | _Default: ...

    def get(self, run: RunId, default: object = None, /) -> object:
        """See `Mapping.get`; called for every event."""
        record = self.touched.get(run)
        if record is None:
            record = self._derived(run)
        return default if record is None else record

    def __contains__(self, run: object) -> bool:
        return isinstance(run, str) and (run in self.touched or self._place(RunId(run)) is not None)

    def _derived(self, run: RunId) -> TaskRun | None:
        remembered = self._derived_before.get(run)
        if remembered is not None and self._still_waits(remembered):
            return remembered
        place = self._place(run)
        if place is None:
            return None
        if len(self._derived_before) >= _REMEMBERED:
            self._derived_before.clear()
        derived = self._derived_before[run] = self._untouched(*place)
        return derived

    def _still_waits(self, known: TaskRun) -> bool:
        """Whether what was derived of a task is still what its job says of it."""
        job = self._jobs.get(known.job)
        if job is None or job.outcome is not None or known.state is not RunState.WAITING:
            return False
        return known.waiting_for == self._told[job.id].why(job.spec.tasks[known.index])

    def _untouched(self, job: Job, index: int) -> TaskRun:
        return untouched(job, index, self._told[job.id].why(job.spec.tasks[index]))

    def at(self, job: Job, index: int) -> TaskRun:
        """The task run of one task of a job."""
        record = self.touched.get(run_id(job.id, index))
        return self._untouched(job, index) if record is None else record

    def _place(self, run: RunId) -> tuple[Job, int] | None:
        """The job and the index of a task that a job has; `None` for any other name."""
        name, _, index = run.rpartition("/")
        job = self._jobs.get(JobId(name))
        if job is None or len(index) > _DIGITS or not (index.isascii() and index.isdigit()):
            return None
        number = int(index)
        if not job.spec.has(number) or str(number) != index:
            return None
        return job, number

    def of(self, job: Job) -> Iterator[TaskRun]:
        """The task runs of a job, by index; takes time in proportion to its tasks."""
        for index in job.spec.indices:
            own = self.at(job, index)
            yield own
            if own.replicas:
                yield from self.extras(own)

    def extras(self, own: TaskRun) -> Iterator[TaskRun]:
        """The extra runs of a task whose own run this is, by number."""
        for number in range(1, own.replicas + 1):
            yield self.touched[run_id(own.job, own.index, number)]

    def others(self, run: TaskRun) -> tuple[TaskRun, ...]:
        """The other runs of a run's task, starting with the task's own run."""
        if not run.extra:
            return tuple(self.extras(run)) if run.replicas else ()
        own = self.touched[run_id(run.job, run.index)]
        return (own, *(extra for extra in self.extras(own) if extra.id != run.id))

    def __iter__(self) -> Iterator[RunId]:
        for job in self._jobs.values():
            for run in self.of(job):
                yield run.id

    def __len__(self) -> int:
        return sum(1 for _ in self)
