"""The Jobs service: users' commands and questions about jobs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Mapping
from itertools import islice
from typing import Any, Protocol

import grpc

from eva_master.adapters.jobfile.inputs import InputRoots
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.objects.blobs import missing, put_blob
from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.adapters.rpc._proto.api_pb2_grpc import JobsServicer
from eva_master.adapters.rpc.errors import BadRequest
from eva_master.adapters.rpc.server import pages, views
from eva_master.adapters.rpc.server.access import caller, require_owner
from eva_master.adapters.rpc.server.job_messages import JobMessages, SendingRoom
from eva_master.adapters.rpc.server.logs import PIECE_BYTES, LogReader, StoredLogs
from eva_master.adapters.rpc.server.parsing import JobParser
from eva_master.adapters.rpc.server.predecessors import PredecessorFinder
from eva_master.adapters.rpc.workers.sessions import WorkerSessions
from eva_master.model.errors import InvalidJob, NotFound
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_master.model.ids import JobId, run_id
from eva_master.model.job import JobSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.states import TERMINAL_JOB
from eva_master.packing.reserving import reserve
from eva_master.ports import Clock, ObjectStore
from eva_master.ports.reading import Archive, JobRecord, ReadModel

Context = grpc.aio.ServicerContext[Any, Any]


class Previewer(Protocol):
    """Makes plans that are not carried out."""

    async def preview(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Plan:
        """Make a plan; raises `InvalidPlan` if the policy breaks down."""
        ...


class JobsService(JobsServicer):
    """Carries out users' commands and answers their questions about jobs.

    Args:
        gateway: Connects to the control loop.
        sessions: The workers, for the logs of running tasks.
        store: Blobs and stored logs.
        clock: The time up to which costs are counted.
        planner: Makes previews.
        archive: Has ended jobs.
        containers: Whether tasks run in containers, and can have images.
        inputs: Where inputs may come from; the default roots if not given.
    """

    def __init__(
        self,
        *,
        gateway: LoopGateway,
        sessions: WorkerSessions,
        store: ObjectStore,
        clock: Clock,
        planner: Previewer,
        archive: Archive,
        containers: bool = True,
        inputs: InputRoots | None = None,
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._store = store
        self._clock = clock
        self._planner = planner
        self._archive = archive
        self._containers = containers
        self._parser = JobParser()
        self._messages = JobMessages(gateway, archive, clock)
        self._sending = SendingRoom()
        self._logs = StoredLogs(store)
        self._inputs = inputs

    # -- commands --------------------------------------------------------------------------------

    async def Submit(  # noqa: N802
        self,
        request: pb.SubmitRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.SubmitResponse:
        """Check a job file and submit the job.

        A submission that is repeated is answered with the job that it made, however long ago: the
        journal knows all that were ever carried out, the control loop those that it carries out.
        Ids of submissions are their owner's: two users may use the same.
        """
        if request.command_id:
            known = await asyncio.to_thread(
                self._archive.submitted, caller().owner, request.command_id
            )
            if known is not None:
                return pb.SubmitResponse(job_id=known)
        if request.workdir and await missing(self._store, [request.workdir]):
            raise InvalidJob(
                "the working directory has not been uploaded", hint="submit the job again"
            )
        if request.build and await missing(self._store, [request.build]):
            raise InvalidJob("the build context has not been uploaded", hint="submit the job again")
        find = await self._finder(given=request.after_ids)
        async with self._parser.turn(caller().owner):
            spec = await self._parse(request, find)
        if any(task.program.build and not task.program.build.context for task in spec.tasks):
            raise InvalidJob(
                "the job needs a build context and none was uploaded",
                hint="submit it with a command of this version",
            )
        command = request.command_id or uuid.uuid4().hex
        ended = find.ended(spec.depends_on)
        reply = await self._gateway.command(JobSubmitted(command, spec, ended))
        return pb.SubmitResponse(job_id=reply.job or "")

    async def Check(  # noqa: N802
        self,
        request: pb.CheckRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.CheckResponse:
        """Check a job file, without its uploads; nothing changes."""
        find = await self._finder(coming=request.coming)
        async with self._parser.turn(caller().owner):
            await self._parse(request, find)
        return pb.CheckResponse()

    async def Cancel(  # noqa: N802
        self,
        request: pb.CancelRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.CancelResponse:
        """Cancel a job; only operators may cancel other users' jobs."""
        job = (await self._find(request.job)).job
        require_owner(job.spec.owner, f"job {job.id}")
        if job.state in TERMINAL_JOB:
            return pb.CancelResponse(job_id=job.id)
        command = request.command_id or uuid.uuid4().hex
        await self._gateway.command(CancelRequested(command, job.id, caller().owner))
        return pb.CancelResponse(job_id=job.id)

    async def _finder(
        self, *, given: Mapping[str, str] | None = None, coming: Collection[str] = ()
    ) -> PredecessorFinder:
        model, owner = await self._gateway.model(), caller().owner
        return PredecessorFinder(model, self._archive, owner, given=given, coming=coming)

    async def _parse(
        self,
        request: pb.SubmitRequest | pb.CheckRequest | pb.PlanRequest,
        find: PredecessorFinder | None = None,
    ) -> JobSpec:
        submitted = request if isinstance(request, pb.SubmitRequest) else pb.SubmitRequest()
        stated = pb.CheckRequest() if isinstance(request, pb.PlanRequest) else request
        return await self._parser.parse(
            request.job_yaml,
            file_name=request.file_name,
            owner=caller().owner,
            catalog=(await self._gateway.model()).catalog,
            workdir=submitted.workdir or None,
            build=submitted.build,
            envs=dict(stated.envs),
            name=stated.name or None,
            containers=self._containers,
            inputs=self._inputs,
            find=find,
        )

    # -- questions -------------------------------------------------------------------------------

    async def Get(self, request: pb.GetJobRequest, context: Context) -> pb.Job:  # noqa: ARG002, N802
        """Answer with one job by its id or name."""
        record = await self._find(request.job)
        model = await self._gateway.model()
        return views.job(model, record, self._clock.now(), self._gateway.pause)

    async def List(  # noqa: N802
        self,
        request: pb.ListJobsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ListJobsResponse:
        """A page of jobs, newest first; see `eva_master.adapters.rpc.server.pages`."""
        now, limit = self._clock.now(), pages.size(request.page_size)

        def page(model: ReadModel) -> pb.ListJobsResponse:
            if request.all:
                records, token = pages.all_jobs(
                    model, self._archive, request.page_token, limit, now
                )
            else:
                newest = model.newest(pages.decoded(request.page_token, JobId))
                names, token = pages.cut([job.id for job in islice(newest, limit + 1)], limit)
                records = [model.record(name, now) for name in names]
            pause = self._gateway.pause
            made = (views.job(model, record, now, pause) for record in records)
            messages, token = pages.that_fit(made, records, token)
            return pb.ListJobsResponse(jobs=messages, next_page_token=token)

        return await self._gateway.read(page)

    # The messages are encoded already, though the generated code expects some that are not.
    async def Watch(  # type: ignore[override]  # noqa: N802
        self,
        request: pb.WatchRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[bytes]:
        """Jobs, encoded, as they are and as they change; ends when all jobs asked for have ended.

        If none is asked for, that is those that have not ended, and those that come. A reader
        that is too slow for all the changes gets the latest state of each job.
        """
        owner = caller().owner
        chosen = {(await self._find(reference)).job.id for reference in request.jobs}
        with self._gateway.watch(chosen or None) as changes:
            due: Collection[JobId] = chosen or list((await self._gateway.model()).active)
            unfinished = set(chosen)
            while True:
                async for message in self._messages.all(list(due)):
                    async with self._sending.taken(owner, len(message.data)):
                        yield message.data
                    if message.over:
                        unfinished.discard(message.job)
                if chosen and not unfinished:
                    return
                due = await anext(changes)

    async def Logs(  # noqa: N802
        self,
        request: pb.LogsRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.LogChunk]:
        """A task's log from its beginning, see `eva_master.adapters.rpc.server.logs`."""
        job = (await self._find(request.job)).job
        if request.task >= len(job.spec.tasks):
            raise NotFound(f"job {job.id} has {len(job.spec.tasks)} tasks, numbered from 0")
        run = run_id(job.id, request.task)
        reader = LogReader(self._gateway, self._sessions, self._store, self._logs, run)
        with self._gateway.watch({job.id}) as changes:
            async for data in reader.read(changes if request.follow else None):
                for start in range(0, len(data), PIECE_BYTES):
                    yield pb.LogChunk(data=data[start : start + PIECE_BYTES])

    async def Plan(  # noqa: N802
        self,
        request: pb.PlanRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.PlanResponse:
        """Preview what would happen to a job; nothing changes."""
        async with self._parser.turn(caller().owner):
            spec = await self._parse(request)
            model, now = await self._gateway.model(), self._clock.now()
            snapshot = await self._gateway.read(lambda _: model.preview(spec, now))
            shown = reserve(snapshot)
            plan = await self._planner.preview(shown.snapshot, model.memory)
            decided = shown.completed(plan)
        return views.plan(snapshot, decided, sum(model.reservation_prices(spec)))

    async def _find(self, reference: str) -> JobRecord:
        """A job by its id, or the caller's newest one by its name.

        Raises:
            NotFound: There is no such job.
        """
        model, owner = await self._gateway.model(), caller().owner
        if (job := model.find(owner, reference)) is not None:
            return model.record(job.id, self._clock.now())
        found = await asyncio.to_thread(_archived, self._archive, owner, reference)
        if found is None or found.job.state not in TERMINAL_JOB:  # younger than the model
            raise NotFound(f"there is no job {reference!r}", hint="`eva ls --all` shows all jobs")
        return found

    # -- files -----------------------------------------------------------------------------------

    async def MissingBlobs(  # noqa: N802
        self,
        request: pb.MissingBlobsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.MissingBlobsResponse:
        """Answer which files a client still has to upload."""
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


def _archived(archive: Archive, owner: str, reference: str) -> JobRecord | None:
    return archive.job(JobId(reference)) or archive.newest_named(owner, reference)
