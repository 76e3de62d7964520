"""A synchronous client of the master's API, eva.api.v1."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from eva_client.rpc.attaching import frames
from eva_client.rpc.cluster_calls import ClusterCalls
from eva_client.rpc.connection import PAGE, command_id, paged
from eva_client.rpc.files import Files
from eva_client.rpc.retry_wait import IMPATIENCE, Outages, RetryWait
from eva_client.rpc.sending import Upload, send
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import attach_pb2
from eva_wire._proto.api_pb2_grpc import (
    JobsStub,
)
from eva_wire.values.errors import InvalidJob, NotFound

if TYPE_CHECKING:
    from eva_client.uploads.workdir import Scanned

Progress = Callable[[int, int], None]
"""Called during an upload with the bytes done and the bytes in total."""
Scan = Callable[[Path], "Scanned"]
"""Lists the files of a directory."""
Admit = Callable[["Scanned", Sequence[str]], None]
"""Told what was found and which digests are to be sent; may raise."""

CHUNK_BYTES = 256 * 1024
_SLOWEST_UPLOAD = 64 * 1024
"""Rate in bytes per second below which an upload fails."""
_DIGESTS_PER_QUESTION = 5_000
_PAGE_OF_TASKS = 1_000


class Client(ClusterCalls):
    """A connection to a master. Use it as a context manager; any thread may use it.

    Every method raises `Unreachable` if the master does not answer, and the master's own error (see
    `eva_wire.values.errors`) if it refuses; `Untrusted` if another server answers at its address.

    Args:
        address: ``HOST:PORT``.
        authorities: PEM certificates that the master is verified with.
        token: The user's token.
        timeout_s: How long a call may take; streams have no limit, plans and uploads more.

    Attributes:
        files: Files that tasks have stored.
        outages: Times at which the master was away.
    """

    def __init__(
        self, address: str, *, authorities: bytes, token: str, timeout_s: float = 30.0
    ) -> None:
        super().__init__(address, authorities=authorities, token=token, timeout_s=timeout_s)
        self._jobs = JobsStub(self._channel)
        self.files = Files(self._channel, self._translated)
        self.outages = Outages()

    def submit(
        self,
        job_yaml: str,
        *,
        file_name: str,
        workdir: str = "",
        build: str = "",
        envs: Mapping[str, str] | None = None,
        name: str = "",
        after_ids: Mapping[str, str] | None = None,
        table: pb.Table | None = None,
        caller_envs: Mapping[str, str] | None = None,
    ) -> pb.SubmitResponse:
        """Submit a job. Repetitions of the call submit it once.

        Args:
            job_yaml: The job file as the user wrote it.
            file_name: Its name, for messages.
            workdir: Digest of an uploaded directory; see `upload`.
            build: Digest of an uploaded build context.
            envs: Variables that override the file's.
            name: Used instead of the file's name when not empty.
            after_ids: Ids of jobs that were just submitted, by the names that the file has for
                them.
            table: Table whose rows are the tasks; see `upload_blob`.
            caller_envs: Values of the file's variables that have none there.
        """
        request = pb.SubmitRequest(
            command_id=command_id(),
            job_yaml=job_yaml,
            file_name=file_name,
            workdir=workdir,
            build=build,
            envs=dict(envs or {}),
            name=name,
            after_ids=dict(after_ids or {}),
            table=table,
            caller_envs=dict(caller_envs or {}),
        )
        return self._call(self._jobs.Submit, request)

    def check(
        self,
        job_yaml: str,
        *,
        file_name: str,
        envs: Mapping[str, str] | None = None,
        coming: Sequence[str] = (),
        caller_envs: Mapping[str, str] | None = None,
    ) -> None:
        """Have a job file checked as by `submit`; nothing changes.

        Args:
            job_yaml: The job file as the user wrote it.
            file_name: Its name, for messages.
            envs: Variables that override the file's.
            coming: Names of jobs that will have been submitted by then.
            caller_envs: As for `submit`.
        """
        request = pb.CheckRequest(
            job_yaml=job_yaml,
            file_name=file_name,
            envs=dict(envs or {}),
            coming=coming,
            caller_envs=dict(caller_envs or {}),
        )
        self._call(self._jobs.Check, request)

    def job(self, reference: str, *, to_change: bool = False) -> pb.Job:
        """Get a job by its id, or the caller's newest active job of a name, else the newest one.

        Args:
            reference: The id or the name.
            to_change: Whether the job is to be changed: a name that several active jobs have is
                refused then.

        Raises:
            NotFound: There is no such job.
            AmbiguousName: Several jobs may be meant.
        """
        return self._call(self._jobs.Get, pb.GetJobRequest(job=reference, to_change=to_change))

    def tasks(
        self,
        reference: str,
        first: int,
        last: int | None = None,
        *,
        failed: bool = False,
        times: bool = False,
    ) -> tuple[pb.Job, Iterator[pb.Task]]:
        """Get a job and some of its tasks, by index, which are fetched page by page.

        Args:
            reference: Id or name of the job.
            first: From which index on.
            last: Up to which index, `None` for all that follow.
            failed: Only those that have failed.
            times: With times and instances of each, and more of their metrics.

        Raises:
            NotFound: There is no such job, or it has no task of the first index.
        """
        job = self._page_of(reference, first, last, failed=failed, times=times)

        def found(page: pb.Job) -> Iterator[pb.Task]:
            at = first
            while True:
                for task in page.tasks:
                    at = task.index + 1
                    if last is not None and task.index > last:
                        return
                    yield task
                # A retry has few tasks, of any index.
                over = (at >= page.task_count and not page.retry_of) or (
                    last is not None and at > last
                )
                if over or sum(not task.replica for task in page.tasks) < _PAGE_OF_TASKS:
                    return
                try:
                    page = self._page_of(job.id, at, last, failed=failed, times=times)
                except NotFound:
                    return  # The page before ended with the last task of a retry.

        return job, found(job)

    def task_named(self, reference: str, name: str) -> tuple[str, int]:
        """The id of a job and the index of the task of a name.

        Raises:
            NotFound: There is no such job, or it has no such task.
        """
        page = pb.TaskPage(name=name)
        job = self._call(self._jobs.Get, pb.GetJobRequest(job=reference, tasks=page))
        return job.id, job.tasks[0].index

    def _page_of(
        self, reference: str, first: int, last: int | None, *, failed: bool, times: bool
    ) -> pb.Job:
        most = _PAGE_OF_TASKS
        if last is not None and not failed:
            most = min(most, last - first + 1)
        page = pb.TaskPage(first=first, size=most, failed=failed, times=times)
        return self._call(self._jobs.Get, pb.GetJobRequest(job=reference, tasks=page))

    def jobs(
        self,
        *,
        ended: bool = False,
        most: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[pb.Job]:
        """List jobs page by page, newest first.

        Args:
            ended: Whether those that have ended are listed too.
            most: How many at most; no more are asked for.
            labels: Labels that the jobs have, all of them.
        """
        size = PAGE if most is None or labels else min(PAGE, most)

        def page(token: str) -> tuple[Iterable[pb.Job], str]:
            request = pb.ListJobsRequest(
                page_size=size, page_token=token, all=ended, labels=labels or {}
            )
            answer = self._call(self._jobs.List, request)
            return answer.jobs, answer.next_page_token

        return islice(paged(page), most)

    def cancel(self, reference: str, *, now: bool = False) -> pb.CancelResponse:
        """Cancel a job by its id or name; `now` without its tasks' grace period."""
        request = pb.CancelRequest(command_id=command_id(), job=reference, now=now)
        return self._call(self._jobs.Cancel, request)

    def suspend(self, reference: str) -> pb.SuspendResponse:
        """Suspend a job by its id or name."""
        request = pb.SuspendRequest(command_id=command_id(), job=reference)
        return self._call(self._jobs.Suspend, request)

    def resume(self, reference: str, *, max_cost: int | None = None) -> pb.ResumeResponse:
        """Have a suspended job go on, by its id or name.

        Args:
            reference: The id or the name.
            max_cost: New most that the job may cost, in micro-dollars; `None` to leave that.

        Raises:
            CostCapReached: The job stands at its `max_cost`, and no higher one is given.
        """
        request = pb.ResumeRequest(
            command_id=command_id(), job=reference, max_cost_micro_usd=max_cost
        )
        return self._call(self._jobs.Resume, request)

    def retry(self, reference: str, *, failed: bool = False) -> pb.RetryResponse:
        """Submit an ended job again, by its id or name; once, even if the call has to be repeated.

        Args:
            reference: The id or the name.
            failed: Whether only those tasks are done again that failed.

        Raises:
            JobActive: The job has not ended.
            NothingToRetry: No task of it failed.
        """
        request = pb.RetryRequest(command_id=command_id(), job=reference, failed=failed)
        return self._call(self._jobs.Retry, request)

    def watch(
        self, references: Sequence[str] = (), *, timeout_s: float | None = None
    ) -> Iterator[pb.Job]:
        """Yield each job (all if none is named) as it is now, and again whenever it changes.

        Args:
            references: Ids or names.
            timeout_s: After this time the stream breaks off with `Unreachable`.
        """
        request = pb.WatchRequest(jobs=references)
        with self._translated():
            for job in self._jobs.Watch(request, timeout=timeout_s):
                others = list(job.also)
                job.ClearField("also")
                yield job
                yield from others

    def logs(
        self, reference: str, *, task: int = 0, follow: bool = False, replica: int | None = None
    ) -> Iterator[bytes]:
        """Yield a task's output from its beginning, and to its end if `follow`.

        Args:
            reference: The job.
            task: Number of the task.
            follow: Whether to wait for more until the task is over.
            replica: Which of several runs of the task; that which succeeded, or its own, if absent.
        """
        request = pb.LogsRequest(job=reference, task=task, follow=follow, replica=replica)
        yield from (chunk.data for chunk in self.log_chunks(request))

    def log_chunks(self, request: pb.LogsRequest) -> Iterator[pb.LogChunk]:
        """Yield a task's output, or the part of it that is asked for, with where it belongs."""
        with self._translated():
            yield from self._jobs.Logs(request)

    def events(
        self,
        subject: str = "",
        *,
        after: int = 0,
        before: int = 0,
        last: int = 0,
        follow: bool = False,
    ) -> Iterator[pb.FeedEvent]:
        """Yield what happened, oldest first.

        Args:
            subject: A job or an instance; empty for the whole cluster.
            after: Only events with a larger number.
            before: Only events with a smaller number; 0 for all.
            last: So many of the newest to begin with; all that are kept if it is 0.
            follow: Whether to go on with what happens from now on.

        Raises:
            NotFound: There is no such job or instance.
        """
        request = pb.EventsRequest(
            subject=subject, after=after, before=before, last=last, follow=follow
        )
        with self._translated():
            for page in self._cluster.Events(request):
                yield from page.events

    def attach(self, inputs: Iterator[attach_pb2.Input]) -> Iterator[attach_pb2.Output]:
        """Exchange frames with a running task; see `eva_client.rpc.attaching`."""
        return frames(self._jobs, inputs, self._address)

    def plan(
        self, job_yaml: str, *, file_name: str, table: pb.Table | None = None
    ) -> pb.PlanResponse:
        """Preview what would happen to a job; nothing changes.

        Args:
            job_yaml: The job file as the user wrote it.
            file_name: Its name, for messages.
            table: Table whose rows are the tasks, by its size.
        """
        request = pb.PlanRequest(job_yaml=job_yaml, file_name=file_name, table=table)
        return self._call(self._jobs.Plan, request, timeout_s=4 * self._timeout_s)

    def move(self, reference: str, partition: str) -> pb.MoveResponse:
        """Have a job, by its id or name, run in another partition."""
        request = pb.MoveRequest(command_id=command_id(), job=reference, partition=partition)
        return self._call(self._jobs.Move, request)

    def upload(
        self,
        directory: Path,
        progress: Progress = lambda _done, _total: None,
        *,
        scan: Scan | None = None,
        admit: Admit = lambda _scanned, _missing: None,
        patience: RetryWait = IMPATIENCE,
    ) -> str:
        """Upload a directory to the object store; stored files are not sent again.

        A file that grows meanwhile is sent as far as it went when it was listed.

        Args:
            directory: Its root.
            progress: Called with the progress, in the calling thread.
            scan: Lists the files to send; by default those of a working directory.
            admit: Called before anything is sent, with what was found and the digests of the files
                that the store lacks; what it raises ends the upload.
            patience: Waits for a master that goes away meanwhile; by default that is an error.

        Returns:
            The digest that names the directory in `submit`.

        Raises:
            InvalidJob: Files cannot be uploaded, or were changed meanwhile; names them all.
        """
        tree = (scan or _working_directory)(directory)
        missing = self._missing([*tree.sources, tree.digest])
        files = [digest for digest in missing if digest != tree.digest]
        admit(tree, files)
        manifest = Upload(tree.digest, tree.manifest, len(tree.manifest))
        uploads = [Upload(file, tree.sources[file], tree.sizes[file]) for file in files]
        total = sum(upload.size for upload in uploads)
        total += manifest.size if tree.digest in missing else 0
        done = 0
        progress(done, total)

        def sent(upload: Upload) -> None:
            nonlocal done
            done += upload.size
            progress(done, total)

        if lost := send(self._put, uploads, sent, patience):
            raise _changed([str(upload.source) for upload in lost])
        # The manifest goes last, so that a directory that can be found is complete.
        if tree.digest in missing:
            send(self._put, [manifest], sent, patience)
        return tree.digest

    def upload_blob(self, data: bytes, *, patience: RetryWait = IMPATIENCE) -> str:
        """Upload a file to the object store, if it is not stored yet; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        if self._missing([digest]):
            send(self._put, [Upload(digest, data, len(data))], lambda _: None, patience)
        return digest

    def _missing(self, digests: list[str]) -> list[str]:
        missing: list[str] = []
        for start in range(0, len(digests), _DIGESTS_PER_QUESTION):
            request = pb.MissingBlobsRequest(digests=digests[start : start + _DIGESTS_PER_QUESTION])
            missing += self._call(self._jobs.MissingBlobs, request).digests
        return missing

    def _put(self, upload: Upload) -> None:
        """Upload a blob; repeating it is harmless.

        Raises:
            DigestMismatch, OSError: The file is not what it was, or is gone.
        """
        if isinstance(upload.source, Path):
            upload.source.stat()
        with self._translated():
            self._jobs.PutBlob(
                _chunks(upload), timeout=self._timeout_s + upload.size / _SLOWEST_UPLOAD
            )


def _chunks(upload: Upload) -> Iterator[pb.BlobChunk]:
    """Yield a blob in pieces. The first has its digest; an empty blob also has a first piece."""
    first = True
    for piece in _pieces(upload.source, upload.size):
        yield pb.BlobChunk(digest=upload.digest if first else "", data=piece)
        first = False
    if first:
        yield pb.BlobChunk(digest=upload.digest)


def _pieces(source: bytes | Path, size: int) -> Iterator[bytes]:
    with BytesIO(source) if isinstance(source, bytes) else source.open("rb") as file:
        while size > 0 and (piece := file.read(min(size, CHUNK_BYTES))):
            size -= len(piece)
            yield piece


# Most commands upload nothing, and what reads directories takes a while to import.


def _working_directory(root: Path) -> Scanned:
    from eva_client.uploads.workdir import scan_directory

    return scan_directory(root)


def _changed(names: list[str]) -> InvalidJob:
    from eva_client.uploads.workdir import changed

    return changed(names)
