"""Run times of finished task runs, kept beside their records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nsmallest

from eva_master.learning.run_times.posterior import NONE_FINISHED, Finished
from eva_master.model.job import TaskSpec
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import NOTHING, Resources
from eva_wire.values.bounds import MOST_PILOTS
from eva_wire.values.ids import JobId, RunId, Workload, run_id
from eva_wire.values.states import TERMINAL_RUN, RunState

Kind = tuple[Workload, Resources]
"""Tasks of one job with one kind are expected to take equally long."""
_LONGEST_WORKLOAD = 200
_KINDS_KEPT = 1_024
"""Of one job; tasks of more kinds tell nothing of each other."""
_TELLING_WITHOUT_PILOTS = 10
"""From so many finished tasks on all of them count."""


def kind_of(task: TaskSpec) -> Kind:
    """The kind of a task: its workload, and what it needs on the first family that it names."""
    return task.workload, task.demand[0][1] if task.demand else NOTHING


def kind_of_all(tasks: Sequence[TaskSpec]) -> Kind:
    """The kind of a gang, or of one task: all workloads, and all that is needed."""
    if len(tasks) == 1:
        return kind_of(tasks[0])
    kinds = [kind_of(task) for task in tasks]
    together = " + ".join(sorted({workload for workload, _ in kinds}))
    return Workload(together[:_LONGEST_WORKLOAD]), sum((need for _, need in kinds), NOTHING)


class Pilots:
    """Tasks of one job that run first so that the run times of the others can be estimated.

    Args:
        indexes: Indexes of the pilots.

    Attributes:
        indexes: Indexes of the pilots.
        left: Indexes of the pilots that have not ended.
        finished: Run times of the succeeded pilots, by kind.
    """

    def __init__(self, indexes: Collection[int]) -> None:
        self.indexes = frozenset(indexes)
        self.left = set(indexes)
        self.finished: dict[Kind, Finished] = {}

    def follow(self, run: TaskRun, kind: Kind) -> None:
        """Take in a task that has ended; a failed pilot has no run time."""
        if run.index in self.left:
            self.left.discard(run.index)
            if not run.took_ms:
                return
            finished = self.finished.get(kind, NONE_FINISHED)
            self.finished = {**self.finished, kind: finished.plus(run.took_ms)}


class FinishedTasks:
    """The finished tasks of the arrays that have not ended; follows the records."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, dict[Kind, Finished]] = {}
        self._pilots: dict[JobId, Pilots] = {}

    def of(self, job: Job) -> Mapping[Kind, Finished]:
        """The finished tasks of one job, by kind."""
        return self._jobs.get(job.id, {})

    def telling(self, job: Job) -> Mapping[Kind, Finished]:
        """The finished tasks of one job on which estimates of the other run times rest.

        Among tasks that began together, the first to finish are the shortest. While few have
        finished, only pilots count, and no pilot is left out for being longer.
        """
        pilots, finished = self._pilots.get(job.id), self.of(job)
        if (
            pilots is None
            or sum(entry.tasks for entry in finished.values()) >= _TELLING_WITHOUT_PILOTS
        ):
            return finished
        return pilots.finished

    def first(self, job: JobId, runs: Mapping[RunId, TaskRun]) -> list[int]:
        """The pilots of a job that wait for a place, by index.

        Args:
            job: The job.
            runs: The records of all task runs.
        """
        pilots = self._pilots.get(job)
        if pilots is None:
            return []
        pilot_runs = ((index, runs[run_id(job, index)]) for index in sorted(pilots.left))
        return [
            index for index, run in pilot_runs if run.state is RunState.WAITING and not run.in_hand
        ]

    def pilots_left(self, job: JobId) -> int | None:
        """How many pilots of a job have not ended; `None` if it has none."""
        pilots = self._pilots.get(job)
        return None if pilots is None else len(pilots.left)

    def choose(self, job: Job, indexes: Collection[int], members: Iterable[TaskRun]) -> bool:
        """Make some tasks of a job its pilots.

        Args:
            job: The job, which has not ended.
            indexes: Indexes of the pilots; of more than `MOST_PILOTS` the first are used.
            members: The records of its task runs.

        Returns:
            Whether the pilots have changed.
        """
        known_pilots = self._pilots.get(job.id)
        indexes = frozenset(nsmallest(MOST_PILOTS, indexes))
        if known_pilots is not None and known_pilots.indexes == indexes:
            return False
        pilots = self._pilots[job.id] = Pilots(indexes)
        for run in members:
            if run.took_ms or run.state in TERMINAL_RUN:
                pilots.follow(run, kind_of(job.spec.tasks[run.index]))
        return True

    def follow(self, old: TaskRun | None, run: TaskRun, job: Job) -> None:
        """Take in the record of an ended task run, of a job that has not ended."""
        if job.is_gang or (old is not None and old.took_ms):
            return
        kinds = self._jobs.get(job.id, {})
        kind = kind_of(job.spec.tasks[run.index])
        if run.took_ms and (kind in kinds or len(kinds) < _KINDS_KEPT):
            # a copy, since readers may have the old one
            finished = kinds.get(kind, NONE_FINISHED)
            self._jobs[job.id] = {**kinds, kind: finished.plus(run.took_ms)}
        if (pilots := self._pilots.get(job.id)) is not None:
            pilots.follow(run, kind)

    def forget(self, job: JobId) -> None:
        """Forget a job, which has ended."""
        self._jobs.pop(job, None)
        self._pilots.pop(job, None)
