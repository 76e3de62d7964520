"""Finds the jobs that callers of methods name."""

from __future__ import annotations

import asyncio

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.server.access import caller
from eva_master.adapters.rpc.server.references import absent, archived, only_job
from eva_master.model.records import Job
from eva_master.ports import Clock
from eva_master.ports.reading import SHOWN, Archive, JobRecord, TaskPage
from eva_wire.values.errors import NotFound

_INDICES = 10
"""Indices in a message."""


class JobFinder:
    """Finds jobs by ids or names, for the caller of a method.

    Args:
        gateway: Has what is active, and what ended lately.
        archive: Has the rest.
        clock: The time up to which costs are counted.
    """

    def __init__(self, gateway: LoopGateway, archive: Archive, clock: Clock) -> None:
        self._gateway = gateway
        self._archive = archive
        self._clock = clock

    async def find(
        self, reference: str, page: TaskPage = SHOWN, *, to_change: bool = False
    ) -> JobRecord:
        """A job by its id or name, with a page of its tasks.

        Raises:
            NotFound: There is no such job.
            AmbiguousName: The job is to be changed, and several active jobs have the name.
        """
        model, owner = await self._gateway.model(), caller().owner
        job = only_job(model, owner, reference) if to_change else model.find(owner, reference)
        if job is not None:
            return model.record(job.id, self._clock.now(), page)
        try:
            return await asyncio.to_thread(archived, self._archive, owner, reference, page)
        except NotFound as error:
            raise absent(model, reference, error) from None


def require_task(job: Job, index: int, *, alone: bool = True) -> None:
    """Check that a job has a task, or some task from an index on; raises `NotFound`."""
    indices = job.spec.indices
    if job.spec.has(index) if alone else index <= indices[-1]:
        return
    last = indices[-1]
    has = "one task, number 0" if last == 0 else f"{last + 1:,} tasks, 0 to {last}"
    if job.spec.size < len(job.spec.tasks):
        few = ", ".join(map(str, indices[:_INDICES]))
        more = f" and {len(indices) - _INDICES:,} more" if len(indices) > _INDICES else ""
        has = f"the tasks {few}{more} of {job.spec.retry.job if job.spec.retry else job.id}"
    raise NotFound(
        f"job {job.id} has no task {index}: it has {has}",
        hint=f"`eva status {job.id}` shows its tasks",
    )
