"""The Jobs service: users' commands and questions about jobs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Any, Protocol

import grpc

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.objects.blobs import put_blob, reference
from eva_master.adapters.objects.file_lists import FileLists
from eva_master.adapters.objects.promises import Promises
from eva_master.adapters.objects.removals import require_kept
from eva_master.adapters.objects.tables import TableReader
from eva_master.adapters.objects.task_logs import StoredLogs
from eva_master.adapters.resolving.inputs import InputRoots
from eva_master.adapters.resolving.parse import SubmittedTable
from eva_master.adapters.resolving.partition import Placement
from eva_master.adapters.rpc.attach.page_door import PageDoor
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import pages, views
from eva_master.adapters.rpc.server.access import caller, require_owner
from eva_master.adapters.rpc.server.admission.pacing import Pacing
from eva_master.adapters.rpc.server.admission.retrying import Retrier
from eva_master.adapters.rpc.server.attaching.service import AttachService
from eva_master.adapters.rpc.server.logs import PIECE_BYTES, LogExtent, LogReader
from eva_master.adapters.rpc.server.overview.samples import Samples
from eva_master.adapters.rpc.server.parsing import JobParser
from eva_master.adapters.rpc.server.parts import job_filter
from eva_master.adapters.rpc.server.parts.job_finder import JobFinder, require_task
from eva_master.adapters.rpc.server.parts.task_times import add_times
from eva_master.adapters.rpc.server.references import PredecessorFinder
from eva_master.adapters.rpc.server.shown.installed import DOUBTS
from eva_master.adapters.rpc.server.shown.secrets import notes_on_secrets
from eva_master.adapters.rpc.server.shown.storage import notes_on_gpus, notes_on_storage
from eva_master.adapters.rpc.server.watching.streams import JobStreams
from eva_master.adapters.rpc.workers.sessions import WorkerSessions
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.events import (
    CancelRequested,
    JobSubmitted,
    MoveRequested,
    ResumeRequested,
    SuspendRequested,
)
from eva_master.model.job import JobSpec, different
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.ports import Clock, ObjectStore, Secrets
from eva_master.ports.reading import Archive, JobRecord, ReadModel, TaskPage
from eva_wire._proto.api_pb2_grpc import JobsServicer
from eva_wire.jobfile.table import Table
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.bounds import MOST_GRACE_MS, MOST_ROWS, MOST_STATED, MOST_TASKS
from eva_wire.values.errors import InvalidJob, InvalidRequest, NotFound
from eva_wire.values.ids import JobId, Millis, RunId, run_id
from eva_wire.values.states import TERMINAL_JOB, RunState
from eva_wire.values.users import Role

Context = grpc.aio.ServicerContext[Any, Any]


class Previewer(Protocol):
    """Makes plans that are not carried out."""

    async def preview(
        self, snapshot: Snapshot, memory: PolicyMemory | None, partition: str = ""
    ) -> Plan:
        """Make a plan with a partition's policy; raises `InvalidPlan` if the policy breaks down."""
        ...


class JobsService(JobsServicer):
    """Carries out users' commands and answers their questions about jobs.

    Args:
        gateway: Connects to the control loop.
        sessions: The workers, for the logs of running tasks.
        store: Blobs and stored logs.
        clock: The time up to which costs are counted.
        planner: Makes previews.
        promises: Uploads that clients count on.
        archive: Has ended jobs.
        containers: Whether tasks run in containers, and can have images.
        inputs: Where inputs may come from; the default roots if not given.
        tenants: Tenants of owners.
        tasks_per_job: How many tasks a job may have.
        grace_period_ms: How long a grace period may be.
        shared: Whether the settings name a directory that all instances share.
        nominal_gpus: Whether tasks find no GPUs, whatever their instances have by their type.
        pacing: Rates of streams that users are granted.
        secrets: Tells which secrets are set; `None` for not.
        samples: Figures of jobs over time; none are told if not given.
        pages: The way to the master's pages; `None` if it has none.
    """

    def __init__(
        self,
        *,
        gateway: LoopGateway,
        sessions: WorkerSessions,
        store: ObjectStore,
        clock: Clock,
        planner: Previewer,
        promises: Promises,
        archive: Archive,
        tenants: TenantRules,
        containers: bool = True,
        inputs: InputRoots | None = None,
        tasks_per_job: int = MOST_TASKS,
        grace_period_ms: int = MOST_GRACE_MS,
        shared: bool = False,
        nominal_gpus: bool = False,
        pacing: Pacing | None = None,
        secrets: Secrets | None = None,
        samples: Samples | None = None,
        pages: PageDoor | None = None,
    ) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._store = store
        self._promises = promises
        self._lists = FileLists(store)
        self._tables = TableReader(store)
        self._clock = clock
        self._planner = planner
        self._archive = archive
        self._finder = JobFinder(gateway, archive, clock)
        self._tenants = tenants
        self._containers = containers
        self._parser = JobParser()
        self._pacing = pacing or Pacing()
        self._streams = JobStreams(gateway, archive, clock, self._pacing)
        self._logs = StoredLogs(store)
        self._inputs = inputs
        self._tasks_per_job = tasks_per_job
        self._grace_period_ms = grace_period_ms
        self._shared = shared
        self._nominal_gpus = nominal_gpus
        self._secrets = secrets
        self._samples = samples
        self._retrier = Retrier(gateway, archive, store, clock, tenants)
        self._attach = AttachService(sessions.attachments, self._finder, pages)

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
            submitted = await asyncio.to_thread(
                self._archive.submitted, caller().owner, request.command_id
            )
            if submitted is not None:
                return pb.SubmitResponse(job_id=submitted)
        variables = (*request.envs.items(), *request.caller_envs.items())
        envs = sum(len(name) + len(value) for name, value in variables)
        self._pacing.submission(caller().owner, len(request.job_yaml) + envs)
        await self._check_uploaded(request.workdir, "working directory")
        await self._check_uploaded(request.build, "build context")
        await self._check_uploaded(request.table.digest, "table")
        find = await self._predecessors(given=request.after_ids)
        async with self._parser.turn(caller().owner):
            await self._check_list(request.workdir, "working directory")
            await self._check_list(request.build, "build context")
            spec = await self._parse(request, find)
        await require_kept(self._store, spec.sources)
        if any(
            task.program.build and not task.program.build.context for task in different(spec.tasks)
        ):
            raise InvalidJob(
                "the job needs a build context and none was uploaded",
                hint="submit it with a command of this version",
            )
        command = request.command_id or uuid.uuid4().hex
        ended = find.ended(spec.stage.depends_on)
        operator = caller().role is Role.OPERATOR
        event = JobSubmitted(command, spec, ended, operator)
        reply = await self._gateway.command(event)
        notes = self._notes(spec, await self._gateway.model(), reply.job)
        return pb.SubmitResponse(job_id=reply.job or "", notes=notes)

    def _notes(self, spec: JobSpec, model: ReadModel, job: JobId | None = None) -> Iterator[str]:
        """Tell users what they may not have meant; of a submitted job its partition is known."""
        submitted = None if job is None else model.jobs.get(job)
        home = model.partitions.home(spec.partition if submitted is None else submitted.partition)
        if home.short is not None:
            yield from home.short.doubts(spec)
        sold = home.sold(model.catalog)
        yield from (note for doubts in DOUBTS for note in doubts(spec, sold))
        if behind := model.behind_others(spec, job, self._clock.now()):
            yield behind
        yield from home.unread(spec)
        yield from notes_on_storage(spec, shared=self._shared)
        yield from notes_on_gpus(spec, nominal=self._nominal_gpus)
        yield from notes_on_secrets(spec, self._secrets)

    async def Retry(  # noqa: N802
        self,
        request: pb.RetryRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.RetryResponse:
        """Submit an ended job again; only operators may do so with other users' jobs.

        The new job is its owner's. A call that is repeated is answered like a submission.
        """
        command = request.command_id or uuid.uuid4().hex
        submitted = await asyncio.to_thread(self._archive.submitted, caller().owner, command)
        if submitted is None:
            job = (await self._finder.find(request.job, TaskPage(0, 1), to_change=True)).job
            require_owner(job.spec.owner, f"job {job.id}")
            submitted = await asyncio.to_thread(self._archive.submitted, job.spec.owner, command)
        if submitted is None:
            self._pacing.submission(caller().owner, job.spec.text)
            finder = PredecessorFinder(await self._gateway.model(), self._archive, job.spec.owner)
            operator = caller().role is Role.OPERATOR
            spec, ended = await self._retrier.spec(
                job, finder, failed=request.failed, anywhere=operator
            )
            reply = await self._gateway.command(JobSubmitted(command, spec, ended, operator))
            assert reply.job is not None
            notes = self._notes(spec, await self._gateway.model(), reply.job)
            return pb.RetryResponse(job_id=reply.job, retry_of=job.id, tasks=spec.size, notes=notes)
        again = (await self._finder.find(submitted, TaskPage(0, 1))).job.spec
        retried = "" if again.retry is None else again.retry.job
        return pb.RetryResponse(job_id=submitted, retry_of=retried, tasks=again.size)

    async def Check(  # noqa: N802
        self,
        request: pb.CheckRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.CheckResponse:
        """Check a job file, without its uploads; nothing changes."""
        find = await self._predecessors(coming=request.coming)
        async with self._parser.turn(caller().owner):
            await self._parse(request, find)
        return pb.CheckResponse()

    async def Cancel(  # noqa: N802
        self,
        request: pb.CancelRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.CancelResponse:
        """Cancel a job; only operators may cancel other users' jobs."""
        event = partial(CancelRequested, now=request.now)
        return pb.CancelResponse(job_id=await self._order(request, event))

    async def Suspend(  # noqa: N802
        self,
        request: pb.SuspendRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.SuspendResponse:
        """Suspend a job, of the caller's own unless the caller is an operator."""
        return pb.SuspendResponse(job_id=await self._order(request, SuspendRequested))

    async def Resume(  # noqa: N802
        self,
        request: pb.ResumeRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ResumeResponse:
        """Have a suspended job go on, likewise."""
        raised = request.max_cost_micro_usd if request.HasField("max_cost_micro_usd") else None
        if raised is not None and not 0 < raised <= MOST_STATED:
            raise InvalidRequest("a job may cost more than nothing, and at most $1,000,000")
        event = partial(ResumeRequested, max_cost=raised)
        return pb.ResumeResponse(job_id=await self._order(request, event))

    async def _order(
        self,
        request: pb.CancelRequest | pb.SuspendRequest | pb.ResumeRequest,
        event: Callable[[str, JobId, str], CancelRequested | SuspendRequested | ResumeRequested],
    ) -> JobId:
        """Have a command on a job carried out; what has ended stays as it is."""
        job = (await self._finder.find(request.job, to_change=True)).job
        require_owner(job.spec.owner, f"job {job.id}")
        if job.state not in TERMINAL_JOB:
            command = request.command_id or uuid.uuid4().hex
            await self._gateway.command(event(command, job.id, caller().owner))
        return job.id

    async def Move(  # noqa: N802
        self,
        request: pb.MoveRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.MoveResponse:
        """Have a job run in another partition; only operators may move other users' jobs."""
        job = (await self._finder.find(request.job, to_change=True)).job
        require_owner(job.spec.owner, f"job {job.id}")
        if job.state not in TERMINAL_JOB:
            command, who = request.command_id or uuid.uuid4().hex, caller()
            operator = who.role is Role.OPERATOR
            event = MoveRequested(command, job.id, request.partition, who.owner, operator)
            await self._gateway.command(event)
        return pb.MoveResponse(job_id=job.id)

    async def _predecessors(
        self, *, given: Mapping[str, str] | None = None, coming: Collection[str] = ()
    ) -> PredecessorFinder:
        model, owner = await self._gateway.model(), caller().owner
        return PredecessorFinder(model, self._archive, owner, given=given, coming=coming)

    async def _check_uploaded(self, digest: str, what: str) -> None:
        """Refuse a directory that its caller has not uploaded; raises `InvalidJob`."""
        owner = caller().owner
        if digest and await self._promises.missing([reference(owner, digest)]):
            raise InvalidJob(
                f"the {what} has not been uploaded by {owner}", hint="submit the job again"
            )

    async def _check_list(self, digest: str, what: str) -> None:
        """Refuse a list of files that no command has made; raises `InvalidJob`."""
        if digest:
            await self._lists.check(reference(caller().owner, digest), what)

    async def _parse(
        self,
        request: pb.SubmitRequest | pb.CheckRequest | pb.PlanRequest,
        find: PredecessorFinder | None = None,
    ) -> JobSpec:
        submitted = request if isinstance(request, pb.SubmitRequest) else pb.SubmitRequest()
        stated = pb.CheckRequest() if isinstance(request, pb.PlanRequest) else request
        table = None
        if not isinstance(request, pb.CheckRequest) and request.HasField("table"):
            table = await self._table(request)
        model, who = await self._gateway.model(), caller()
        placement = Placement(
            model.partitions, model.partition_of, anywhere=who.role is Role.OPERATOR
        )
        return await self._parser.parse(
            request.job_yaml,
            file_name=request.file_name,
            owner=caller().owner,
            tenant=self._tenants.of(caller().owner),
            catalog=model.catalog,
            placement=placement,
            workdir=reference(who.owner, submitted.workdir) if submitted.workdir else None,
            build=reference(who.owner, submitted.build) if submitted.build else "",
            envs=dict(stated.envs),
            name=stated.name or None,
            containers=self._containers,
            inputs=self._inputs,
            find=find,
            spec_of=find.spec_of if find else lambda _: None,
            tasks_allowed=self._tasks_per_job,
            grace_allowed_ms=self._grace_period_ms,
            table=table,
            caller=None if isinstance(request, pb.PlanRequest) else dict(request.caller_envs),
        )

    async def _table(self, request: pb.SubmitRequest | pb.PlanRequest) -> SubmittedTable:
        """The table of an array: what was uploaded, or for a preview its size alone."""
        stated = request.table
        if not isinstance(request, pb.SubmitRequest):
            if not 1 <= stated.rows <= MOST_ROWS:
                raise BadRequest(f"a table has 1 to {MOST_ROWS:,} rows, not {stated.rows:,}")
            return SubmittedTable(Table(stated.file_name, stated.rows))
        name = reference(caller().owner, stated.digest)
        table = await self._tables.read(name, file_name=stated.file_name, names=stated.names)
        return SubmittedTable(table, name)

    # -- questions -------------------------------------------------------------------------------

    async def Get(self, request: pb.GetJobRequest, context: Context) -> pb.Job:  # noqa: ARG002, N802
        """Answer with one job by its id or name."""
        page = pages.of_tasks(request)
        if request.tasks.name:
            page = await self._page_of_named(request.job, request.tasks.name)
        record = await self._finder.find(request.job, page, to_change=request.to_change)
        if page.first is not None and not page.failed:
            require_task(record.job, page.first, alone=page.most == 1)
        now, pause = self._clock.now(), self._gateway.pause
        message = await self._gateway.read(lambda model: views.job(model, record, now, pause))
        if request.tasks.times:
            await add_times(message, record, now, self._gateway, self._archive)
        if request.curves and self._samples is not None:
            message.curves.extend(self._samples.curves(record.job.id))
        return message

    async def _page_of_named(self, reference: str, name: str) -> TaskPage:
        """The page of the task of a name; raises `NotFound`."""
        job = (await self._finder.find(reference, TaskPage(0, 1))).job
        index = job.spec.index_of(name)
        if index is None:
            raise NotFound(f"job {job.id} has no task named {name[:80]!r}")
        return TaskPage(index, 1)

    async def List(  # noqa: N802
        self,
        request: pb.ListJobsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ListJobsResponse:
        """A page of jobs, newest first; see `eva_master.adapters.rpc.server.pages`."""
        now, limit = self._clock.now(), pages.size(request.page_size)
        chosen = job_filter.filter_of(request)

        def page(model: ReadModel) -> pb.ListJobsResponse:
            if request.all:
                records, token = pages.all_jobs(
                    model, self._archive, request.page_token, limit, now
                )
                records = list(filter(chosen.fits, records))
            else:
                before = pages.decoded(request.page_token, JobId)
                records = list(islice(chosen.newest(model, before, now), limit + 1))
                _, token = pages.cut([record.job.id for record in records], limit)
                records = records[:limit]
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
        chosen = {(await self._finder.find(reference)).job.id for reference in request.jobs}
        async with aclosing(self._streams.of(caller().owner, chosen)) as messages:
            async for data in messages:
                yield data

    async def Logs(  # noqa: N802
        self,
        request: pb.LogsRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.LogChunk]:
        """A task's log or a part of it, see `eva_master.adapters.rpc.server.logs`."""
        record = await self._finder.find(request.job, TaskPage(request.task, 1))
        job = record.job
        require_task(job, request.task)
        run = _run_of(record, request)
        task_run = next((candidate for candidate in record.runs if candidate.id == run), None)
        reader = LogReader(
            self._gateway, self._sessions, self._store, self._logs, run, record=task_run
        )
        # Stores date what they have by the wall clock.
        model = await self._gateway.model()
        attempt, extent = 0, _extent(request, model.wall.of(self._clock.now()))
        with self._gateway.watch({job.id}) as changes:
            async for piece in reader.read(changes if request.follow else None, extent):
                for start in range(0, len(piece.data), PIECE_BYTES):
                    data = piece.data[start : start + PIECE_BYTES]
                    chunk = pb.LogChunk(
                        data=data, attempt=piece.attempt, offset=piece.offset + start
                    )
                    if piece.attempt != attempt:
                        attempt = piece.attempt
                        chunk.begins.CopyFrom(reader.about(attempt))
                    yield chunk

    # A coroutine that reads and writes itself, though the generated code expects a generator.
    async def Attach(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: Any,  # noqa: ARG002
        context: Context,
    ) -> None:
        """Pass on what a user and a running task exchange; see `eva_master.adapters.rpc.attach`."""
        await self._attach.serve(context)

    async def Plan(  # noqa: N802
        self,
        request: pb.PlanRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.PlanResponse:
        """Preview what would happen to a job; nothing changes."""
        async with self._parser.turn(caller().owner):
            spec = await self._parse(request)
            model, now = await self._gateway.model(), self._clock.now()
            preview = await self._gateway.read(lambda _: model.preview(spec, now))
            if preview.refused is not None:
                raise preview.refused
            plan = None
            if preview.question is not None:
                asked = preview.question, preview.memory, preview.partition
                plan = await self._planner.preview(*asked)
            foreseen = await self._gateway.read(lambda _: preview.foreseen(plan))
        message = views.plan(foreseen, sum(model.reservation_prices(spec)))
        message.notes.extend(self._notes(spec, model))
        return message

    # -- files -----------------------------------------------------------------------------------

    async def MissingBlobs(  # noqa: N802
        self,
        request: pb.MissingBlobsRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.MissingBlobsResponse:
        """Answer which files a client still has to upload, whatever other users have."""
        own = {reference(caller().owner, digest): digest for digest in request.digests}
        return pb.MissingBlobsResponse(
            digests=[own[blob] for blob in await self._promises.missing(own)]
        )

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

        name = reference(caller().owner, first.digest)
        await self._promises.settled(name)
        await put_blob(self._store, name, data())
        return pb.PutBlobResponse()


def _extent(request: pb.LogsRequest, now: Millis) -> LogExtent:
    return LogExtent(
        tail=request.tail if request.HasField("tail") else None,
        since=Millis(max(0, now - request.last_ms)) if request.last_ms else None,
        previous=request.previous,
        start=(request.from_attempt, request.from_offset),
    )


def _run_of(record: JobRecord, request: pb.LogsRequest) -> RunId:
    """The run of a task whose log is asked for.

    Raises:
        NotFound: The task has no such run.
    """
    runs = [run for run in record.runs if run.index == request.task]
    if not request.HasField("replica"):
        won = [run.id for run in runs if run.extra and run.state is RunState.SUCCEEDED]
        return won[0] if won else run_id(record.job.id, request.task)
    name = run_id(record.job.id, request.task, request.replica)
    if all(run.id != name for run in runs):
        extra = len(runs) - 1
        extras = f"extra runs are numbered 1 to {extra}" if extra > 0 else "it has no extra run"
        raise NotFound(f"task {request.task} of job {record.job.id} has no run {name}: {extras}")
    return name
