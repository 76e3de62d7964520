"""Ended jobs that are submitted again, with their files and from their checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.objects.blobs import missing
from eva_master.adapters.objects.removals import require_kept
from eva_master.adapters.rpc.server.admission.retried_tasks import retry_of
from eva_master.adapters.rpc.server.references import PredecessorFinder
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.records import Ended, Job, Outcome, TaskRun
from eva_master.ports import Clock, ObjectStore
from eva_master.ports.reading import PAGE_AT_MOST, Archive, ReadModel, TaskPage
from eva_wire.values.errors import InvalidJob, InvalidRequest, JobActive, NotAuthorised
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB


@dataclass(frozen=True, slots=True)
class Retrier:
    """Makes new jobs of ended ones.

    Attributes:
        gateway: Has the newest model.
        archive: Has what the model has forgotten.
        store: Has the files of jobs.
        clock: The time of records.
        tenants: Tenants of owners.
    """

    gateway: LoopGateway
    archive: Archive
    store: ObjectStore
    clock: Clock
    tenants: TenantRules

    async def spec(
        self, job: Job, finder: PredecessorFinder, *, failed: bool, anywhere: bool
    ) -> tuple[JobSpec, tuple[Ended, ...]]:
        """The job that does an ended one again.

        Args:
            job: The ended one.
            finder: Finds jobs of its owner.
            failed: Whether only those tasks are done again that failed.
            anywhere: Whether it may run in every partition, as an operator has it.

        Returns:
            The new job, and how those ended that it is to run after.

        Raises:
            JobActive: The job has not ended.
            NothingToRetry: No task of it failed.
            InvalidRequest: A job that it is to run after did not succeed.
            InvalidJob: Its files are not stored any more.
            NotAuthorised: Its owner may not run jobs in its partition, or not any more.
        """
        if job.state not in TERMINAL_JOB:
            raise JobActive(
                f"job {job.id} is {job.state.value}, and only a job that has ended is retried",
                hint=f"wait for its end, or end it first: eva cancel {job.id}",
            )
        partition = await self._partition(job, anywhere=anywhere)
        runs = () if job.is_gang else await self._runs(job, failed=failed)
        retry = await asyncio.to_thread(retry_of, job, runs, failed=failed)
        await self._require_files(job)
        instead = await asyncio.to_thread(_replacements, job, finder)

        def present(jobs: Sequence[JobId]) -> tuple[JobId, ...]:
            return tuple(dict.fromkeys(instead.get(job_id, job_id) for job_id in jobs))

        stage = job.spec.stage
        spec = replace(
            job.spec,
            tasks=_reading_from(job.spec.tasks, instead),
            stage=replace(
                stage, depends_on=present(stage.depends_on), only_ended=present(stage.only_ended)
            ),
            partition=partition,
            tenant=self.tenants.of(job.spec.owner),
            retry=retry,
        )
        return spec, finder.ended(spec.stage.depends_on)

    async def _partition(self, job: Job, *, anywhere: bool) -> str:
        """Where it ran last; a partition that is no more leads to the default one."""
        home = (await self.gateway.model()).partitions.home(job.partition)
        if not (anywhere or home.admits(job.spec.owner)):
            raise NotAuthorised(
                f"{job.spec.owner} may not run jobs in partition {home.name}, where {job.id} ran",
                hint="ask an operator to retry it; see: eva partitions",
            )
        return home.name

    async def _runs(self, job: Job, *, failed: bool) -> Sequence[TaskRun]:
        """The runs of all tasks of an array, or of those that failed."""
        now = self.clock.now()

        def known(model: ReadModel) -> Sequence[TaskRun] | None:
            if job.id not in model.jobs:
                return None
            page = TaskPage(0, len(job.spec.tasks), failed)
            return model.record(job.id, now, page).runs

        runs = await self.gateway.read(known)
        return await asyncio.to_thread(self._archived, job, failed) if runs is None else runs

    def _archived(self, job: Job, failed: bool) -> list[TaskRun]:
        task_runs: list[TaskRun] = []
        first, last = 0, job.spec.indices[-1]
        while first <= last:
            record = self.archive.job(job.id, TaskPage(first, PAGE_AT_MOST, failed))
            if record is None or not record.runs:
                break
            task_runs += record.runs
            first = record.runs[-1].index + 1
        return task_runs

    async def _require_files(self, job: Job) -> None:
        await require_kept(self.store, [job.id])
        if (names := sorted(job.spec.uploads)) and await missing(self.store, names):
            raise InvalidJob(
                f"files of {job.id} are not stored any more", hint="submit its job file again"
            )


def _replacements(job: Job, finder: PredecessorFinder) -> dict[JobId, JobId]:
    """The jobs that a job is to run after in place of those that did not succeed.

    A name in `after` means the newest job of that name, so a retry counts in place of the job that
    it does again.

    Raises:
        InvalidRequest: There is no newer one, or it did not succeed either.
    """
    finder([*job.spec.stage.depends_on])
    replacements: dict[JobId, JobId] = {}
    for end in finder.ended(job.spec.stage.depends_on):
        if end.outcome is Outcome.SUCCEEDED or end.job in job.spec.stage.only_ended:
            continue
        spec = finder.spec_of(end.job)
        name = "" if spec is None else spec.name
        newest = finder([name]).get(name)
        ended = finder.ended([newest]) if isinstance(newest, str) else (end,)
        if not isinstance(newest, str) or any(
            later.outcome is not Outcome.SUCCEEDED for later in ended
        ):
            how = "failed" if end.outcome is Outcome.FAILED else "was cancelled"
            raise InvalidRequest(
                f"{end.job}, after which {job.id} is to run, {how}",
                hint=f"retry that one first: eva retry {end.job}",
            )
        replacements[end.job] = newest
    return replacements


def _reading_from(
    tasks: tuple[TaskSpec, ...], instead: Mapping[JobId, JobId]
) -> tuple[TaskSpec, ...]:
    """Tasks that read the outputs of other jobs than before."""
    if not instead:
        return tasks
    changed: dict[int, TaskSpec] = {}
    for task in {id(spec): spec for spec in tasks}.values():
        outputs = tuple(
            replace(output, job=instead.get(output.job, output.job))
            for output in task.program.outputs
        )
        changed[id(task)] = replace(task, program=replace(task.program, outputs=outputs))
    return tuple(changed[id(task)] for task in tasks)
