"""A synchronous client of the master's API, eva.api.v1."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import grpc

from eva_client.rpc import faults
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub, NodesStub, TokensStub
from eva_wire.rpc.channels import open_channel
from eva_wire.values.errors import DigestMismatch, InvalidJob, InvalidRequest, NotFound, Unreachable

if TYPE_CHECKING:
    from eva_client.uploads.workdir import Scanned

Request = TypeVar("Request")
Response = TypeVar("Response")
Entry = TypeVar("Entry")
Progress = Callable[[int, int], None]
"""Called during an upload with the bytes done and the bytes in total."""
Scan = Callable[[Path], "Scanned"]
"""Lists the files of a directory."""
Admit = Callable[["Scanned", Sequence[str]], None]
"""Told what was found and which digests are to be sent; may raise."""

CHUNK_BYTES = 256 * 1024
_UPLOADS = 8
_UPLOAD_ATTEMPTS = 3
_SLOWEST_UPLOAD = 64 * 1024
"""Rate in bytes per second below which an upload fails."""
_DIGESTS_PER_QUESTION = 5_000
_PAGE = 500
_PAGE_OF_TASKS = 1_000


class Client:
    """A connection to a master. Use it as a context manager; any thread may use it.

    Every method raises `Unreachable` if the master does not answer, and the master's own error (see
    `eva_wire.values.errors`) if it refuses; `Untrusted` if another server answers at its address.

    Args:
        address: ``HOST:PORT``.
        authorities: PEM certificates that the master is verified with.
        token: The user's token.
        timeout_s: How long a call may take; streams have no limit, plans and uploads more.
    """

    def __init__(
        self, address: str, *, authorities: bytes, token: str, timeout_s: float = 30.0
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._channel = open_channel(address, authorities=authorities, token=token)
        self._jobs = JobsStub(self._channel)
        self._cluster = ClusterStub(self._channel)
        self._tokens = TokensStub(self._channel)
        self._nodes = NodesStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; streams that are being read end."""
        self._channel.close()

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
        """
        request = pb.SubmitRequest(
            command_id=_command_id(),
            job_yaml=job_yaml,
            file_name=file_name,
            workdir=workdir,
            build=build,
            envs=dict(envs or {}),
            name=name,
            after_ids=dict(after_ids or {}),
        )
        return self._call(self._jobs.Submit, request)

    def check(
        self,
        job_yaml: str,
        *,
        file_name: str,
        envs: Mapping[str, str] | None = None,
        coming: Sequence[str] = (),
    ) -> None:
        """Have a job file checked as by `submit`; nothing changes.

        Args:
            job_yaml: The job file as the user wrote it.
            file_name: Its name, for messages.
            envs: Variables that override the file's.
            coming: Names of jobs that will have been submitted by then.
        """
        request = pb.CheckRequest(
            job_yaml=job_yaml, file_name=file_name, envs=dict(envs or {}), coming=coming
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
        self, reference: str, first: int, last: int | None = None, *, failed: bool = False
    ) -> tuple[pb.Job, Iterator[pb.Task]]:
        """Get a job and some of its tasks, by index, which are fetched page by page.

        Args:
            reference: Id or name of the job.
            first: From which index on.
            last: Up to which index, `None` for all that follow.
            failed: Only those that have failed.

        Raises:
            NotFound: There is no such job, or it has no task of the first index.
        """
        job = self._page_of(reference, first, last, failed=failed)

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
                    page = self._page_of(job.id, at, last, failed=failed)
                except NotFound:
                    return  # The page before ended with the last task of a retry.

        return job, found(job)

    def _page_of(self, reference: str, first: int, last: int | None, *, failed: bool) -> pb.Job:
        most = _PAGE_OF_TASKS
        if last is not None and not failed:
            most = min(most, last - first + 1)
        page = pb.TaskPage(first=first, size=most, failed=failed)
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
        size = _PAGE if most is None or labels else min(_PAGE, most)

        def page(token: str) -> tuple[Iterable[pb.Job], str]:
            request = pb.ListJobsRequest(
                page_size=size, page_token=token, all=ended, labels=labels or {}
            )
            answer = self._call(self._jobs.List, request)
            return answer.jobs, answer.next_page_token

        return islice(_paged(page), most)

    def cancel(self, reference: str, *, now: bool = False) -> pb.CancelResponse:
        """Cancel a job by its id or name; `now` without its tasks' grace period."""
        request = pb.CancelRequest(command_id=_command_id(), job=reference, now=now)
        return self._call(self._jobs.Cancel, request)

    def suspend(self, reference: str) -> pb.SuspendResponse:
        """Suspend a job by its id or name."""
        request = pb.SuspendRequest(command_id=_command_id(), job=reference)
        return self._call(self._jobs.Suspend, request)

    def resume(self, reference: str) -> pb.ResumeResponse:
        """Have a suspended job go on, by its id or name."""
        request = pb.ResumeRequest(command_id=_command_id(), job=reference)
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
        request = pb.RetryRequest(command_id=_command_id(), job=reference, failed=failed)
        return self._call(self._jobs.Retry, request)

    def watch(self, references: Sequence[str] = ()) -> Iterator[pb.Job]:
        """Yield each job (all if none is named) as it is now, and again whenever it changes."""
        request = pb.WatchRequest(jobs=references)
        with self._translated():
            for job in self._jobs.Watch(request):
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

    def plan(self, job_yaml: str, *, file_name: str) -> pb.PlanResponse:
        """Preview what would happen to a job; nothing changes."""
        request = pb.PlanRequest(job_yaml=job_yaml, file_name=file_name)
        return self._call(self._jobs.Plan, request, timeout_s=4 * self._timeout_s)

    def drain(self, instance: str, *, move: bool) -> pb.Instance:
        """Have an instance take no new task and go once it is empty; it may be said again."""
        request = pb.DrainRequest(command_id=_command_id(), instance=instance, move=move)
        return self._call(self._cluster.Drain, request).instance

    def describe(self) -> pb.ClusterState:
        """The cluster and its instances, less those that are gone."""
        return self._call(self._cluster.Describe, pb.DescribeRequest())

    def instances(self) -> Iterator[pb.Instance]:
        """All instances that ever were, newest first, fetched page by page."""

        def page(token: str) -> tuple[Iterable[pb.Instance], str]:
            request = pb.DescribeRequest(all=True, page_size=_PAGE, page_token=token)
            answer = self._call(self._cluster.Describe, request)
            return answer.instances, answer.next_page_token

        return _paged(page)

    def cost(self, *, newest: int = 100) -> pb.Bill:
        """The costs of the cluster so far, with the newest jobs and instances.

        Args:
            newest: At most so many of each, from 0 to 1,000; see `job_costs` and `instance_costs`
                for all.
        """
        return self._call(
            self._cluster.Cost,
            pb.CostRequest(page_size=newest, without_jobs=not newest, without_instances=not newest),
        )

    def cost_by(self, by: str) -> pb.Bill:
        """The sums of the bill, and what of it each `type` of instances or `owner` of jobs cost.

        Raises:
            InvalidRequest: The master is of a release that does not tell that.
        """
        request = pb.CostRequest(without_jobs=True, without_instances=True, by=by)
        answer = self._call(self._cluster.Cost, request)
        if answer.by != by:
            raise InvalidRequest(
                f"this master does not tell costs by {by}", hint="it is an older one: upgrade it"
            )
        return answer

    def job_costs(self) -> Iterator[pb.JobCost]:
        """The cost of each job of all time, newest first, fetched page by page."""

        def page(token: str) -> tuple[Iterable[pb.JobCost], str]:
            request = pb.CostRequest(page_size=_PAGE, jobs_page_token=token, without_instances=True)
            answer = self._call(self._cluster.Cost, request)
            return answer.jobs, answer.next_jobs_page_token

        return _paged(page)

    def instance_costs(self) -> Iterator[pb.InstanceCost]:
        """The cost of each instance that was ever billed, newest first, fetched page by page."""

        def page(token: str) -> tuple[Iterable[pb.InstanceCost], str]:
            request = pb.CostRequest(page_size=_PAGE, instances_page_token=token, without_jobs=True)
            answer = self._call(self._cluster.Cost, request)
            return answer.instances, answer.next_instances_page_token

        return _paged(page)

    def tenants(self) -> pb.TenantsResponse:
        """The tenants with their jobs and costs, and the sums over all."""
        return self._call(self._cluster.Tenants, pb.TenantsRequest())

    def partitions(self) -> pb.PartitionsResponse:
        """Each partition's holdings and costs, and the sums over all."""
        return self._call(self._cluster.Partitions, pb.PartitionsRequest())

    def move(self, reference: str, partition: str) -> pb.MoveResponse:
        """Have a job, by its id or name, run in another partition."""
        request = pb.MoveRequest(command_id=_command_id(), job=reference, partition=partition)
        return self._call(self._jobs.Move, request)

    def interference(self) -> pb.Learned:
        """Learned figures of workloads and instance types."""
        return self._call(self._cluster.Interference, pb.InterferenceRequest())

    def estimates(self, owner: str = "") -> pb.LearnedTimes:
        """Learned run times, of one owner or, if empty, of all."""
        return self._call(self._cluster.Estimates, pb.EstimatesRequest(owner=owner))

    def explain(self, subject: str = "") -> pb.Explanation:
        """Explain a job, an instance or a round; the newest round if none is named."""
        return self._call(self._cluster.Explain, pb.ExplainRequest(subject=subject))

    def config(self) -> str:
        """The master's settings in force, as JSON."""
        return self._call(self._cluster.Config, pb.ConfigRequest()).json

    def create_token(
        self, owner: str, role: str, *, lifetime_ms: int | None = None
    ) -> pb.CreateTokenResponse:
        """Create a user's token; without a lifetime it does not expire."""
        request = pb.CreateTokenRequest(owner=owner, role=role, lifetime_ms=lifetime_ms or 0)
        return self._call(self._tokens.Create, request)

    def tokens(self) -> Sequence[pb.Token]:
        """List all user tokens, oldest first."""
        return self._call(self._tokens.List, pb.ListTokensRequest()).tokens

    def revoke_token(self, key: str) -> None:
        """Revoke a token, which is then refused."""
        self._call(self._tokens.Revoke, pb.RevokeTokenRequest(id=key))

    def create_node_token(self, node: str, lifetime_ms: int) -> pb.NodeTokenResponse:
        """Make a token that one machine may join with as an owned node."""
        request = pb.NodeTokenRequest(node=node, lifetime_ms=lifetime_ms)
        return self._call(self._nodes.Token, request)

    def act_on_node(self, node: str, verb: str) -> None:
        """Drain, resume, give up or remove an owned node."""
        request = pb.NodeActRequest(command_id=_command_id(), node=node, verb=verb)
        self._call(self._nodes.Act, request)

    def owned_nodes(self) -> Sequence[pb.Node]:
        """The declared owned nodes, be they here or not."""
        return self._call(self._nodes.List, pb.ListNodesRequest()).nodes

    def who_am_i(self) -> pb.Token:
        """The token that this client uses."""
        return self._call(self._tokens.WhoAmI, pb.WhoAmIRequest())

    def upload(
        self,
        directory: Path,
        progress: Progress = lambda _done, _total: None,
        *,
        scan: Scan | None = None,
        admit: Admit = lambda _scanned, _missing: None,
    ) -> str:
        """Upload a directory to the object store; stored files are not sent again.

        A file that grows meanwhile is sent as far as it went when it was listed.

        Args:
            directory: Its root.
            progress: Called with the progress, in the calling thread.
            scan: Lists the files to send; by default those of a working directory.
            admit: Called before anything is sent, with what was found and the digests of the files
                that the store lacks; what it raises ends the upload.

        Returns:
            The digest that names the directory in `submit`.

        Raises:
            InvalidJob: Files cannot be uploaded, or were changed meanwhile; names them all.
        """
        tree = (scan or _working_directory)(directory)
        missing = self._missing([*tree.sources, tree.digest])
        files = [digest for digest in missing if digest != tree.digest]
        admit(tree, files)
        total = sum(tree.sizes[file] for file in files)
        total += len(tree.manifest) if tree.digest in missing else 0
        done = 0
        progress(done, total)
        lost: list[str] = []
        # The manifest goes last, so that a directory that can be found is complete.
        with ThreadPoolExecutor(_UPLOADS) as pool:
            running = {
                pool.submit(self._put, file, tree.sources[file], tree.sizes[file]): file
                for file in files
            }
            try:
                for finished in as_completed(running):
                    try:
                        done += finished.result()
                    except (DigestMismatch, OSError):
                        lost.append(str(tree.sources[running[finished]]))
                    progress(done, total)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if lost:
            raise _changed(lost)
        if tree.digest in missing:
            done += self._put(tree.digest, tree.manifest, len(tree.manifest))
            progress(done, total)
        return tree.digest

    def _missing(self, digests: list[str]) -> list[str]:
        missing: list[str] = []
        for start in range(0, len(digests), _DIGESTS_PER_QUESTION):
            request = pb.MissingBlobsRequest(digests=digests[start : start + _DIGESTS_PER_QUESTION])
            missing += self._call(self._jobs.MissingBlobs, request).digests
        return missing

    def _put(self, digest: str, source: bytes | Path, size: int) -> int:
        """Upload a blob; returns its size in bytes. Repeating it is harmless.

        Raises:
            DigestMismatch, OSError: The file is not what it was, or is gone.
        """
        if isinstance(source, Path):
            source.stat()
        for attempt in range(1, _UPLOAD_ATTEMPTS + 1):
            try:
                with self._translated():
                    self._jobs.PutBlob(
                        _chunks(digest, source, size),
                        timeout=self._timeout_s + size / _SLOWEST_UPLOAD,
                        # The first failure may be due to a master that restarts, so wait for it.
                        wait_for_ready=attempt > 1,
                    )
            except Unreachable:
                if attempt == _UPLOAD_ATTEMPTS:
                    raise
            else:
                break
        return size

    def _call(
        self,
        method: grpc.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_s: float | None = None,
    ) -> Response:
        with self._translated():
            return method(request, timeout=timeout_s or self._timeout_s)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as failure:
            raise faults.translated(failure, self._address) from failure


def _paged(page: Callable[[str], tuple[Iterable[Entry], str]]) -> Iterator[Entry]:
    """The entries of all pages; `page` fetches the one that a token names, and the next token."""
    token = ""
    while True:
        entries, token = page(token)
        yield from entries
        if not token:
            return


def _command_id() -> str:
    return str(uuid.uuid4())


def _chunks(digest: str, source: bytes | Path, size: int) -> Iterator[pb.BlobChunk]:
    """Yield a blob in pieces. The first has its digest; an empty blob also has a first piece."""
    first = True
    for piece in _pieces(source, size):
        yield pb.BlobChunk(digest=digest if first else "", data=piece)
        first = False
    if first:
        yield pb.BlobChunk(digest=digest)


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
