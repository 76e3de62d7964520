"""The parts of a read model that answer as those of the control loop's state do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from eva_master.control.readside.gang_parts import parts_of
from eva_master.control.state.derived.dags import Dag
from eva_master.control.state.derived.gang_places import GangParts, KeyOf
from eva_master.control.state.derived.task_counts import TaskCounts
from eva_master.control.state.finished import Kind
from eva_master.control.state.job_tasks import JobTasks
from eva_master.control.state.records import Records, placed
from eva_master.learning.colocation import Key, lookup
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.run_times.posterior import Finished
from eva_master.learning.voices.names import Voice
from eva_master.learning.voices.resolution import Resolved
from eva_master.model.job import Stragglers, TaskSpec
from eva_master.model.records import Job, TaskRun, untouched
from eva_wire.values.ids import MILLION, InstanceId, JobId, RunId
from eva_wire.values.states import RunState


@dataclass(frozen=True, slots=True)
class ReadersCompany:
    """Readers' part of `Records.company`, made of the records."""

    records: Records

    def groups(self, instance: InstanceId) -> list[tuple[TaskRun, int]]:
        """One task run of each kind and rate on an instance, with the number of such runs."""
        running = [run for run in self.records.occupants(instance) if run.state is RunState.RUNNING]
        kinds = Counter(map(self._likeness, running))
        first = {self._likeness(run): run for run in reversed(running)}
        return [(first[kind], count) for kind, count in kinds.items()]

    def _likeness(self, run: TaskRun) -> tuple[JobId, int, float, bool]:
        """The properties that task runs of one group have in common, see `Company`."""
        return run.job, id(self.records.task(run)), run.progress.rate, run.extra

    def runs_on(self, run: RunId, instance: InstanceId) -> bool:
        """Whether a task run runs on an instance."""
        record = self.records.runs.touched.get(run)
        if record is None or record.state is not RunState.RUNNING:
            return False
        return bool(record.instance == instance)

    def jobs_on(self, instance: InstanceId) -> Collection[JobId]:
        """The jobs of the task runs that take room on an instance, in the order of those."""
        return dict.fromkeys(run.job for run in self.records.occupants(instance))

    def has_extras(self, instance: InstanceId) -> bool:
        """Whether an extra run of a task takes room on an instance."""
        return any(run.extra for run in self.records.occupants(instance))

    def ppm(self, run: RunId) -> int | None:  # noqa: ARG002
        """How fast a task run was in its company: of no use to readers, so unknown."""
        return None


@dataclass(frozen=True, slots=True)
class ReadersTasks:
    """Readers' part of `Records.tasks`, made of the counts."""

    records: Records
    counts: Mapping[JobId, TaskCounts]

    def succeeded(self, job: JobId) -> int:
        """How many tasks of a job have succeeded."""
        return self.of(job).counts[RunState.SUCCEEDED]

    def failed(self, job: JobId) -> int:
        """How many tasks of a job have failed for good."""
        return self.of(job).failed

    def kinds(self, job: JobId) -> tuple[TaskSpec, ...]:
        """Tasks of a job that differ, all its workloads and demands among them."""
        return self.counts[job].kinds.tasks

    def by_kind(self, job: JobId) -> tuple[Sequence[int], ...]:
        """The indices of a job's tasks of each kind."""
        return self.counts[job].kinds.groups

    def gpu_ms(self, job: JobId) -> int:
        """The time for which tasks had GPUs, those that run now not counted since they began."""
        return sum(run.gpu_ms for run in self.records.members(job))

    def shown(self, job: JobId) -> list[RunId]:
        """The tasks of an array that a plan is about, by index."""
        return self.of(job).shown(self.records.jobs[job])

    def replicas_left(self, job: JobId) -> int | None:
        """How many more tasks of an array may be given an extra run now."""
        record = self.records.jobs[job]
        rests = record.is_gang or record.spec.array.stragglers is Stragglers.KEEP
        return None if rests else self.of(job).replicas_left(record)

    def unseen(self, job: JobId) -> int:
        """How many tasks of an array wait and might be placed beside those that are shown."""
        record = self.records.jobs[job]
        return 0 if record.is_gang else self.of(job).unseen(record)

    def of(self, job: JobId) -> JobTasks:
        """The counts of a job as the control loop has them; takes time with its tasks."""
        record, touched = self.records.jobs[job], self.records.runs.touched
        tasks = JobTasks(record)
        for run in self.records.members(job):
            if run.id in touched:
                tasks.follow(None if run.extra else untouched(record, run.index), run)
        return tasks


@dataclass(frozen=True, slots=True)
class ReadersFinished:
    """Readers' part of `Records.finished_tasks`, made of the counts."""

    counts: Mapping[JobId, TaskCounts]

    def telling(self, job: Job) -> Mapping[Kind, Finished]:
        """The finished tasks of an array on which estimates rest, by kind."""
        counts = self.counts.get(job.id)
        return {} if counts is None else counts.telling

    def of(self, job: Job) -> Mapping[Kind, Finished]:
        """The finished tasks of an array that has not ended, by kind."""
        counts = self.counts.get(job.id)
        return {} if counts is None else counts.finished

    def pilots_left(self, job: JobId) -> int | None:
        """The number of pilots of a job that have not succeeded; `None` without pilots."""
        counts = self.counts.get(job)
        return None if counts is None else counts.pilots_left


@dataclass(frozen=True, slots=True)
class ReadersFigures:
    """Readers' part of `Records.figures`, of the last plan."""

    learned: Knowledge
    resolved: Resolved

    def resolve(self) -> Resolved:
        """Figures of the last plan, by which readers go."""
        return self.resolved

    def expected_ppm(self, voice: Voice, entry: Key) -> int:
        """See `FigureRecords.expected_ppm`."""
        return lookup(self.learned.of(voice).throughput, entry)

    def observed_ppm(self, voice: Voice, entry: Key) -> int:
        """See `FigureRecords.observed_ppm`."""
        return lookup(self.learned.of(voice).throughput, entry, MILLION)


@dataclass(frozen=True, slots=True)
class ReadersGangs:
    """Readers' part of `Records.gangs`; answers are remembered, since the model never changes."""

    records: Records
    answers: dict[JobId, GangParts]

    def parts(self, job: JobId, key_of: KeyOf) -> GangParts:
        """Members of a gang that have an instance, in groups; see `GangPlaces.parts`."""
        parts = self.answers.get(job)
        if parts is None:
            members = placed(self.records, job)
            parts = self.answers[job] = parts_of(self.records, members, key_of)
        return parts


@dataclass(frozen=True, slots=True)
class ReadersDags:
    """Readers' part of `Records.dags`, by the jobs' names."""

    dag_by_job: Mapping[JobId, Dag]

    def of(self, job: Job) -> Dag | None:
        """The DAG of a job; `None` if it is no stage of one, or has ended."""
        return self.dag_by_job.get(job.id)
