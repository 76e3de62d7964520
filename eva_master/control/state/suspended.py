"""Which jobs are suspended: as a whole by users, or some of their tasks by plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from eva_master.control.state.job_tasks import JobTasks
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import JobId, RunId
from eva_wire.values.states import TERMINAL_JOB, TERMINAL_RUN, JobState


class Suspended:
    """Follows the records, so that nobody has to look at all tasks of a job.

    ``job in suspended`` says whether a user has suspended it, so that no plan is about it.
    """

    def __init__(self) -> None:
        self._jobs: set[JobId] = set()
        self._runs: dict[JobId, set[RunId]] = {}
        self._resting: dict[JobId, str] = {}
        """Jobs that users see as suspended, with their tenants."""
        self._by_tenant: Counter[str] = Counter()

    def __contains__(self, job: JobId) -> bool:
        return job in self._jobs

    def partly(self, job: JobId) -> bool:
        """Whether plans have suspended any task of a job that has not started again since."""
        return job in self._runs

    @property
    def by_tenant(self) -> Mapping[str, int]:
        """How many jobs of each tenant are suspended and have no task that runs."""
        return dict(self._by_tenant)

    def follow(self, job: Job, tasks: JobTasks) -> None:
        """Take in the record of a job that was added or replaced; `tasks` follows its tasks."""
        if job.suspension is not None and job.state not in TERMINAL_JOB:
            self._jobs.add(job.id)
        else:
            self._jobs.discard(job.id)
        self._count(job, tasks)

    def follow_run(self, old: TaskRun | None, run: TaskRun, job: Job, tasks: JobTasks) -> None:
        """Follow the new record of a task run of a job; `old` is its record before."""
        suspended = run.suspension is not None and run.state not in TERMINAL_RUN
        if suspended:
            self._runs.setdefault(run.job, set()).add(run.id)
        elif old is not None and old.suspension is not None and run.job in self._runs:
            self._runs[run.job].discard(run.id)
            if not self._runs[run.job]:
                del self._runs[run.job]
        self._count(job, tasks)

    def _count(self, job: Job, tasks: JobTasks) -> None:
        """Follow whether a job rests: suspended by a user, or with all tasks that are left."""
        if not (self._jobs or self._runs or self._resting):
            return  # nobody was suspended
        runs = len(self._runs.get(job.id, ()))
        rests = job.state is JobState.PENDING and (
            job.id in self._jobs or (runs > 0 and runs == tasks.left)
        )
        if rests == (job.id in self._resting):
            return
        if rests:
            tenant = self._resting[job.id] = job.spec.tenant
            self._by_tenant[tenant] += 1
        else:
            tenant = self._resting.pop(job.id)
            self._by_tenant[tenant] -= 1
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]
