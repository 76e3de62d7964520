"""The Jobs service: what users do with jobs."""

from __future__ import annotations

import asyncio
import base64
import binascii
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import dropwhile, islice
from typing import Any, Protocol

import grpc

from eva_master.adapters.jobfile import parse_job
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.objects.blobs import missing, put_blob
from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.adapters.rpc._proto.api_pb2_grpc import JobsServicer
from eva_master.adapters.rpc.errors import BadRequest
from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.access import caller, require_owner
from eva_master.adapters.rpc.server.logs import LogReader
from eva_master.adapters.rpc.workers.sessions import WorkerSessions
from eva_master.control.planning.preview import hypothetical
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.errors import InvalidJob, NotFound
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_master.model.ids import JobId, run_id
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Job
from eva_master.model.states import TERMINAL_JOB
from eva_master.ports import Clock, ObjectStore

_PAGE = 100
_LARGEST_PAGE = 1000
_JOBS_PER_READ = 100
"""How many jobs are turned into messages before the control loop may go on."""
_LOG_BYTES = 256 * 1024

Context = grpc.aio.ServicerContext[Any, Any]


class Previewer(Protocol):
    """Makes plans that nobody carries out."""

    async def preview(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Plan:
        """Make a plan; raises `InvalidPlan` if the policy breaks down."""
        ...


class JobsService(JobsServicer):
    """Users' commands and questions about jobs.

    Args:
        gateway: The way to the control loop.
        sessions: The workers, for the logs of running tasks.
        store: Blobs and stored logs.
        clock: For what jobs owe now.
        planner: For previews.
        settings: Assumed delays, for previews.
        containers: Whether tasks run in containers, and can have images.
    """

    def __init__(
        self,
        *,
        gateway: LoopGateway,
        sessions: WorkerSessions,
        store: ObjectStore,
        clock: Clock,
        planner: Previewer,
        settings: Settings,
        containers: bool = True,
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._store = store
        self._clock = clock
        self._planner = planner
        self._settings = settings
        self._containers = containers

    # -- commands --------------------------------------------------------------------------------

    async def Submit(  # noqa: N802
        self,
        request: pb.SubmitRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.SubmitResponse:
        """Check a job file and hand the job in."""
        if request.workdir and await missing(self._store, [request.workdir]):
            raise InvalidJob(
                "the working directory has not been uploaded", hint="submit the job again"
            )
        if request.build and await missing(self._store, [request.build]):
            raise InvalidJob("the build context has not been uploaded", hint="submit the job again")
        spec = await self._parse(request)
        if any(task.program.build and not task.program.build.context for task in spec.tasks):
            raise InvalidJob(
                "the job needs a build context and none was uploaded",
                hint="submit it with a command of this version",
            )
        command = request.command_id or uuid.uuid4().hex
        reply = await self._gateway.command(JobSubmitted(command, spec))
        return pb.SubmitResponse(job_id=reply.job or "")

    async def Cancel(  # noqa: N802
        self,
        request: pb.CancelRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.CancelResponse:
        """Have a job end; somebody else's only for an operator."""
        owner = caller().owner
        job = await self._gateway.read(lambda state: _find(state, owner, request.job))
        require_owner(job.spec.owner, f"job {job.id}")
        command = request.command_id or uuid.uuid4().hex
        await self._gateway.command(CancelRequested(command, job.id))
        return pb.CancelResponse(job_id=job.id)

    async def _parse(self, request: pb.SubmitRequest | pb.PlanRequest) -> JobSpec:
        submitted = request if isinstance(request, pb.SubmitRequest) else pb.SubmitRequest()
        # A file of a thousand tasks takes long enough to hold up every other call.
        return await asyncio.to_thread(
            parse_job,
            request.job_yaml,
            file_name=request.file_name,
            owner=caller().owner,
            catalog=await self._gateway.read(lambda state: state.catalog),
            workdir=submitted.workdir or None,
            build=submitted.build,
            envs=dict(submitted.envs),
            name=submitted.name or None,
            containers=self._containers,
        )

    # -- questions -------------------------------------------------------------------------------

    async def Get(self, request: pb.GetJobRequest, context: Context) -> pb.Job:  # noqa: ARG002, N802
        """One job."""
        owner, now = caller().owner, self._clock.now()
        return await self._gateway.read(
            lambda state: views.job(state, _find(state, owner, request.job), now)
        )

    async def List(  # noqa: N802
        self,
        request: pb.ListJobsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ListJobsResponse:
        """A page of jobs, newest first.

        A token names the last job of the page before, so jobs that arrive or end in between
        neither repeat nor hide others.
        """
        size = min(request.page_size or _PAGE, _LARGEST_PAGE)
        after = _decode_token(request.page_token)
        now = self._clock.now()

        def page(state: State) -> pb.ListJobsResponse:
            jobs = list(islice(_newest(state, after, ended=request.all), size + 1))
            return pb.ListJobsResponse(
                jobs=[views.job(state, job, now) for job in jobs[:size]],
                next_page_token=_encode_token(jobs[size - 1].id) if len(jobs) > size else "",
            )

        return await self._gateway.read(page)

    async def Watch(  # noqa: N802
        self,
        request: pb.WatchRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.Job]:
        """Jobs as they are and as they change; ends when all jobs asked for have ended.

        A reader that is too slow for all the changes gets the latest state of each job.
        """
        owner = caller().owner
        chosen = await self._gateway.read(
            lambda state: {_find(state, owner, reference).id for reference in request.jobs}
        )
        with self._gateway.watch(chosen or None) as changes:
            due: Iterable[JobId] = chosen or await self._gateway.read(
                lambda state: list(state.jobs)
            )
            unfinished = set(chosen)
            while True:
                async for job in self._messages(list(due)):
                    yield job
                    if job.state in TERMINAL_JOB:
                        unfinished.discard(JobId(job.id))
                if chosen and not unfinished:
                    return
                due = await anext(changes)

    async def _messages(self, jobs: Sequence[JobId]) -> AsyncIterator[pb.Job]:
        for start in range(0, len(jobs), _JOBS_PER_READ):
            some = jobs[start : start + _JOBS_PER_READ]
            now = self._clock.now()
            for message in await self._gateway.read(
                lambda state, some=some, now=now: [  # type: ignore[misc]
                    views.job(state, state.jobs[job], now) for job in some
                ]
            ):
                yield message

    async def Logs(  # noqa: N802
        self,
        request: pb.LogsRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.LogChunk]:
        """A task's log from its beginning, see `eva_master.adapters.rpc.server.logs`."""
        owner = caller().owner
        job = await self._gateway.read(lambda state: _find(state, owner, request.job))
        if request.task >= len(job.spec.tasks):
            raise NotFound(f"job {job.id} has {len(job.spec.tasks)} tasks, numbered from 0")
        run = run_id(job.id, request.task)
        reader = LogReader(self._gateway, self._sessions, self._store, run)
        with self._gateway.watch({job.id}) as changes:
            async for data in reader.read(changes if request.follow else None):
                for start in range(0, len(data), _LOG_BYTES):
                    yield pb.LogChunk(data=data[start : start + _LOG_BYTES])

    async def Plan(  # noqa: N802
        self,
        request: pb.PlanRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.PlanResponse:
        """What would happen to a job; changes nothing."""
        spec = await self._parse(request)
        now = self._clock.now()
        picture, memory, alone = await self._gateway.read(
            lambda state: (
                hypothetical(state, spec, now, self._settings),
                state.memory,
                sum(one.price for one in state.valuation.of(spec)),
            )
        )
        return views.plan(picture, await self._planner.preview(picture, memory), alone)

    # -- files -----------------------------------------------------------------------------------

    async def MissingBlobs(  # noqa: N802
        self,
        request: pb.MissingBlobsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.MissingBlobsResponse:
        """Which files a client has to upload."""
        return pb.MissingBlobsResponse(digests=await missing(self._store, request.digests))

    async def PutBlob(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.BlobChunk],
        context: Context,  # noqa: ARG002
    ) -> pb.PutBlobResponse:
        """Store a file under its digest."""
        chunks = aiter(request_iterator)
        first = await anext(chunks, None)
        if first is None:
            raise BadRequest("a blob needs at least one chunk, with its digest")

        async def data() -> AsyncIterator[bytes]:
            yield first.data
            async for chunk in chunks:
                yield chunk.data

        await put_blob(self._store, first.digest, data())
        return pb.PutBlobResponse()


def _find(state: State, owner: str, reference: str) -> Job:
    job = state.find(owner, reference)
    if job is None:
        raise NotFound(f"there is no job {reference!r}", hint="`eva ls --all` shows all jobs")
    return job


def _newest(state: State, after: JobId | None, *, ended: bool) -> Iterator[Job]:
    """Jobs from the newest on, those that were submitted before `after` if it is given."""
    if after is None:
        return (state.jobs[key] for key in reversed(state.jobs if ended else state.active))
    if after not in state.jobs:
        raise BadRequest("this page token is not one of this cluster's")
    older = islice(dropwhile(lambda key: key != after, reversed(state.jobs)), 1, None)
    return (state.jobs[key] for key in older if ended or key in state.active)


def _encode_token(last: JobId) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _decode_token(token: str) -> JobId | None:
    try:
        return JobId(base64.urlsafe_b64decode(token.encode()).decode()) if token else None
    except (binascii.Error, UnicodeError) as error:
        raise BadRequest("this is no page token") from error
