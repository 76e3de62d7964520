"""What is known of how long task runs took, beside their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eva_master.learning.posterior import NONE_FINISHED, Finished
from eva_master.model.ids import JobId, Workload
from eva_master.model.job import TaskSpec
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import NOTHING, Resources

Kind = tuple[Workload, Resources]
"""Tasks of one job with one kind are expected to take equally long."""
_KINDS_KEPT = 1_024
"""Of one job; tasks of more kinds tell nothing of each other."""


def kind_of(task: TaskSpec) -> Kind:
    """The kind of a task: its workload, and what it needs on the first family that it names."""
    return task.workload, task.demand[0][1] if task.demand else NOTHING


def finished_of(job: Job, members: Iterable[TaskRun]) -> dict[Kind, Finished]:
    """The finished tasks of an array, by kind; none of a gang, whose tasks end together."""
    index = FinishedTasks()
    for run in () if job.is_gang else members:
        index.follow(None, run, job)
    return dict(index.of(job))


class FinishedTasks:
    """The finished tasks of the arrays that have not ended; follows the records."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, dict[Kind, Finished]] = {}

    def of(self, job: Job) -> Mapping[Kind, Finished]:
        """Those of one job, by kind."""
        return self._jobs.get(job.id, {})

    def follow(self, old: TaskRun | None, run: TaskRun, job: Job) -> None:
        """Take in the record of a task run of a job that has not ended."""
        if not run.took_ms or (old is not None and old.took_ms) or job.is_gang:
            return
        kinds = self._jobs.get(job.id, {})
        kind = kind_of(job.spec.tasks[run.index])
        if kind in kinds or len(kinds) < _KINDS_KEPT:
            # A copy, since readers may have this one.
            known = kinds.get(kind, NONE_FINISHED)
            self._jobs[job.id] = {**kinds, kind: known.plus(run.took_ms)}

    def forget(self, job: JobId) -> None:
        """Forget a job, which has ended."""
        self._jobs.pop(job, None)
