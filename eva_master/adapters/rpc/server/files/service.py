"""The Files service: lists and sends the files that tasks of jobs have stored.

Outputs and checkpoints are for the job's owner and for operators; logs, as with `Jobs.Logs`, for
all who may see jobs.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from itertools import groupby
from typing import Any

import grpc
import structlog

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.objects.blobs import blob_key
from eva_master.adapters.objects.collection import Garbage, collect
from eva_master.adapters.objects.promises import Promises
from eva_master.adapters.objects.removals import removal_of
from eva_master.adapters.objects.stored_files import (
    LOGS,
    OUTPUTS,
    TOPS,
    FileReader,
    ReadAhead,
    TaskFile,
    listed,
)
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.access import caller, require_owner
from eva_master.adapters.rpc.server.parts.job_finder import JobFinder, require_task
from eva_master.model.events import RemovalRequested
from eva_master.ports import Clock, ObjectStore
from eva_master.ports.reading import Archive, JobRecord, TaskPage
from eva_wire._proto.api_pb2_grpc import FilesServicer
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.bounds import MOST_TASKS
from eva_wire.values.errors import Busy, InvalidRequest, NotFound
from eva_wire.values.ids import JobId, Millis, RunId, replica_of, run_id

MOST_WANTED = 1_000
"""Files of one call."""
_LONGEST_PATH = 8_192
_LONGEST_VERSION = 200
_MOST_REPLICA = 999_999_999
_CALLS_IN_ALL = 100
"""Calls of all users together that send files; each has a piece in memory."""
_WAIT_S = 5.0
_TABLE_PIECE_BYTES = 1 << 20

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class FilesService(FilesServicer):
    """Lists and sends outputs, checkpoints and logs.

    Args:
        gateway: Has the jobs that are active or ended lately.
        archive: Has the others.
        store: Has the files.
        clock: The present time.
        promises: Uploads that clients count on.
        shared: Whether the settings name a directory that all instances share, in which outputs
            lie.
    """

    def __init__(
        self,
        *,
        gateway: LoopGateway,
        archive: Archive,
        store: ObjectStore,
        clock: Clock,
        promises: Promises,
        shared: bool = False,
    ) -> None:
        self._finder = JobFinder(gateway, archive, clock)
        self._gateway = gateway
        self._archive = archive
        self._clock = clock
        self._promises = promises
        self._collecting = False
        self._store = store
        self._shared = shared
        self._room = ReadAhead()
        self._calls = 0

    async def List(  # noqa: N802
        self,
        request: pb.ListFilesRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.FileList]:
        """The files that a job's tasks have stored so far, in parts, in any order."""
        path = _normal(request.path)
        index = request.task if request.HasField("task") else None
        record = await self._finder.find(request.job, TaskPage(index or 0, 1))
        job = record.job
        _require_right(job.spec.owner, job.id, path)
        if index is not None:
            require_task(job, index)
        runs = None if index is None else _runs(record, index)
        count = 0
        async with aclosing(listed(self._store, job.id, runs, path)) as parts:
            async for part in parts:
                count += len(part)
                yield pb.FileList(
                    job_id=job.id, task_count=len(job.spec.tasks), files=map(_message, part)
                )
        if not count:
            raise await self._nothing(job.id, index, path)

    async def _nothing(self, job: JobId, index: int | None, path: str) -> NotFound:
        """Complaint about a path without files."""
        what = job if index is None else run_id(job, index)
        if (removed := await removal_of(self._store, job)) is not None:
            return NotFound(
                f"the files of {job} were removed {removed.words}",
                hint="submit its job file again to have them anew",
            )
        if self._shared and path.partition("/")[0] in ("", OUTPUTS):
            return NotFound(
                f"{what} has stored nothing in {path or 'the object store'}",
                hint=f"instances share a directory; outputs lie there, below jobs/{what}/outputs",
            )
        others = f"`eva get {what} --list` lists its files; " if path else ""
        return NotFound(
            f"{what} has stored no {path or 'file'}",
            hint=f"{others}files of a running task are stored after a while",
        )

    async def Get(  # noqa: N802
        self,
        request: pb.GetFilesRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.FilePiece]:
        """Files from the bytes that are asked for on, piece by piece as the caller takes them."""
        if not 0 < len(request.files) <= MOST_WANTED:
            raise BadRequest(f"{len(request.files):,} files: 1 to {MOST_WANTED:,} may be asked for")
        job = (await self._finder.find(request.job, TaskPage(0, 1))).job
        wanted = [(_file(job.id, entry.file), entry.offset) for entry in request.files]
        for top, _ in groupby(file.path.partition("/")[0] for file, _ in wanted):
            _require_right(job.spec.owner, job.id, top)
        sent = 0
        with self._call():
            reader = FileReader(self._store, self._room)
            async with aclosing(reader.read(wanted)) as pieces:
                async for piece in pieces:
                    sent += len(piece.data or b"")
                    yield pb.FilePiece(
                        index=piece.position,
                        offset=piece.offset,
                        data=piece.data or b"",
                        gone=piece.data is None,
                    )
        who = caller()
        log.info("files sent", job=job.id, files=len(wanted), bytes=sent, to=who.owner, by=who.id)

    async def Table(  # noqa: N802
        self,
        request: pb.TableRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.TableChunk]:
        """The table of an array, as it was uploaded; nothing for a job without one."""
        job = (await self._finder.find(request.job, TaskPage(0, 1))).job
        require_owner(job.spec.owner, f"the table of job {job.id}")
        table = job.spec.array.table
        if table is None:
            return
        key, sent, who = blob_key(table.blob), 0, caller()
        with self._call():
            while data := await self._store.get(key, offset=sent, length=_TABLE_PIECE_BYTES):
                sent += len(data)
                yield pb.TableChunk(data=data)
        log.info("table sent", job=job.id, bytes=sent, to=who.owner, by=who.id)

    async def Collect(  # noqa: N802
        self,
        request: pb.CollectRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[pb.Garbage]:
        """Remove uploads that no job needs; answers with the sums so far."""
        if self._collecting:
            raise InvalidRequest("uploads are being collected", hint="wait for the other `eva gc`")
        self._collecting = True
        sums = Garbage()
        try:
            work = collect(
                self._store, self._archive, self._promises, self._clock, dry_run=request.dry_run
            )
            async with aclosing(work) as parts:
                async for sums in parts:
                    yield pb.Garbage(
                        uploads=sums.uploads,
                        uploads_bytes=sums.uploads_bytes,
                        leftovers=sums.leftovers,
                        leftovers_bytes=sums.leftovers_bytes,
                    )
        finally:
            self._collecting = False
            log.info("uploads collected", sums=sums, dry_run=request.dry_run, by=caller().id)

    async def Remove(  # noqa: N802
        self,
        request: pb.RemoveFilesRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.RemoveFilesResponse:
        """Have all that an ended job has stored removed; only operators may for other users' jobs.

        Once this is answered the removal is written down, and is carried out.
        """
        job = (await self._finder.find(request.job, TaskPage(0, 1), to_change=True)).job
        require_owner(job.spec.owner, f"what job {job.id} has stored")
        command = request.command_id or uuid.uuid4().hex
        await self._gateway.command(RemovalRequested(command, job.id, caller().owner))
        return pb.RemoveFilesResponse(job_id=job.id)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Count a call that sends files; raises `Busy`."""
        if self._calls >= _CALLS_IN_ALL:
            raise Busy.until("the master sends files to too many users at a time", _WAIT_S)
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1


def _require_right(owner: str, job: str, path: str) -> None:
    if path.partition("/")[0] != LOGS:
        require_owner(owner, f"what job {job} has stored")


def _normal(path: str) -> str:
    """A path of a request without slashes at its end.

    Raises:
        InvalidRequest: No file of a task has such a path.
    """
    path = path.rstrip("/")
    top, *names = path.split("/")
    if path and (top not in TOPS or not {"", ".", ".."}.isdisjoint(names)):
        inside = "/".join(name for name in (top, *names) if name not in ("", ".", ".."))
        raise InvalidRequest(
            f"{path[:200]!r} is no path of a task's files: those begin with outputs, checkpoints "
            "or logs, and have no . or ..",
            hint=f"outputs/{inside[:200]}?" if inside else "",
        )
    return path


def _runs(record: JobRecord, index: int) -> list[RunId]:
    """All runs of a task, its own first."""
    own = run_id(record.job.id, index)
    extra = next((run.replicas for run in record.runs if run.id == own), 0)
    return [own, *(run_id(record.job.id, index, number) for number in range(1, extra + 1))]


def _message(file: TaskFile) -> pb.StoredFile:
    index = file.run.rpartition("/")[2].partition("+")[0]
    return pb.StoredFile(
        task=int(index),
        replica=replica_of(file.run),
        path=file.path,
        size=file.size,
        modified_ms=file.modified_ms,
        version=file.version,
    )


def _file(job: JobId, stated: pb.StoredFile) -> TaskFile:
    """A file that a client names; raises `BadRequest`."""
    if (
        stated.task >= MOST_TASKS
        or stated.replica > _MOST_REPLICA
        or len(stated.path) > _LONGEST_PATH
        or len(stated.version) > _LONGEST_VERSION
    ):
        raise BadRequest("no listing has such a file")
    return TaskFile(
        run_id(job, stated.task, stated.replica),
        stated.path,
        stated.size,
        Millis(stated.modified_ms),
        stated.version,
    )
