"""The users' side of attachments: `Jobs.Attach`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import structlog

from eva_master.adapters.rpc.attach.attachments import Attachments
from eva_master.adapters.rpc.attach.page_door import PageDoor
from eva_master.adapters.rpc.attach.relay import End, Traffic, relay
from eva_master.adapters.rpc.server.access import (
    caller,
    check_caller,
    require_owner,
    require_role,
)
from eva_master.adapters.rpc.server.admission.requests import checked
from eva_master.adapters.rpc.server.attaching.target import check_kind, chosen_run, ended, only_task
from eva_master.adapters.rpc.server.parts.job_finder import JobFinder, require_task
from eva_master.model.records import Job, TaskRun
from eva_master.ports.reading import TaskPage
from eva_wire._proto import attach_pb2 as pb
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import EvaError, NotFound
from eva_wire.values.states import TERMINAL_JOB
from eva_wire.values.users import Role

Context = grpc.aio.ServicerContext[Any, Any]
_FIRST_FRAME_S = 30.0

log = structlog.get_logger(__name__)


class AttachService:
    """Lets owners and operators into running tasks.

    Args:
        attachments: Brings users and agents together.
        finder: Finds jobs by ids or names.
        pages: The way to the master's pages; `None` if it has none.
    """

    def __init__(
        self, attachments: Attachments, finder: JobFinder, pages: PageDoor | None = None
    ) -> None:
        self._attachments = attachments
        self._finder = finder
        self._pages = pages

    async def serve(self, context: Context) -> None:
        """Serve the call of a user until the command or the connection has ended.

        Raises:
            EvaError: The user may not get in, or there is nothing to get into.
        """
        wanted = await self._wanted(context)
        if wanted.kind.HasField("ui"):
            await self._serve_pages(context)
            return
        require_role(Role.USER, "Jobs.Attach")
        words = check_kind(wanted.kind)
        job, run = await self._target(wanted)
        assert run.instance is not None
        user, instance = caller(), run.instance
        bound = log.bind(
            job=job.id,
            run=run.id,
            attempt=run.attempt,
            instance=instance,
            user=user.owner,
            token=user.id,
            what=wanted.kind.WhichOneof("kind"),
        )
        attachments = self._attachments
        end, traffic, began, how = End(context), Traffic(), time.monotonic(), "left by the user"
        with attachments.counted(user.owner, instance, run.id, wanted.kind):
            bound.info("attachment opens", owner=job.spec.owner, command=words)
            try:
                with attachments.ticket(instance, run.id, run.attempt, wanted.kind) as ticket:
                    agent = await attachments.answered(ticket)
                    gone = f"the worker on {instance} went away, and what ran in {run.id} with it"
                    await relay(end, agent, traffic, check_caller, gone)
                how = "ended"
            except EvaError as error:
                how = error.message
                raise
            finally:
                bound.info(
                    "attachment ends",
                    how=how,
                    code=traffic.code,
                    seconds=round(time.monotonic() - began, 1),
                    sent=traffic.sent,
                    received=traffic.received,
                )
                # A user who does not read holds this call, and is charged with it.
                await end.written()

    async def _serve_pages(self, context: Context) -> None:
        """Pass on what a browser and the pages exchange, until either ends the connection."""
        if self._pages is None:
            raise NotFound("this master serves no pages")
        end = End(context)
        try:
            async with self._pages.connected(caller().owner) as pages:
                await relay(end, pages, Traffic(), check_caller, "the pages went away")
        finally:
            await end.written()

    @staticmethod
    async def _wanted(context: Context) -> pb.Open:
        try:
            async with asyncio.timeout(_FIRST_FRAME_S):
                first: object = await context.read()
        except TimeoutError:
            raise BadRequest("the first frame did not come in time") from None
        if not isinstance(first, pb.Input) or not first.HasField("open"):
            raise BadRequest("the first frame must say what is wanted")
        checked(first.open)
        return first.open

    async def _target(self, wanted: pb.Open) -> tuple[Job, TaskRun]:
        named = wanted.HasField("task")
        page = TaskPage(wanted.task if named else 0, 1)
        record = await self._finder.find(wanted.job, page, to_change=True)
        job = record.job
        require_owner(job.spec.owner, f"job {job.id}")
        if named:
            require_task(job, wanted.task)
        index = wanted.task if named else only_task(job)
        if job.state in TERMINAL_JOB:
            raise ended(job)
        if index and not named:
            record = await self._finder.find(job.id, TaskPage(index, 1))
        replica = wanted.replica if wanted.HasField("replica") else None
        return job, chosen_run(job, record.runs, index, replica)
