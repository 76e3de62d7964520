"""The files that tasks have stored, as the master lists and sends them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import FilesStub
from eva_wire.values.errors import InvalidRequest

_TIMEOUT_S = 30.0


class Translation(Protocol):
    """Makes errors for the user of what a block's calls raise."""

    def __call__(self) -> AbstractContextManager[None]:
        """The block."""
        ...


@dataclass(slots=True)
class Listing:
    """The files of a job's tasks.

    Attributes:
        job: The job's id.
        tasks: How many tasks it has.
        files: Sorted by task, run and path.
    """

    job: str = ""
    tasks: int = 0
    files: list[pb.StoredFile] = field(default_factory=list)


class Files:
    """Calls of the service eva.api.v1.Files; any thread may use it.

    Args:
        channel: The connection to the master.
        translated: Makes errors for the user.
    """

    def __init__(self, channel: grpc.Channel, translated: Translation) -> None:
        self._stub = FilesStub(channel)
        self._translated = translated

    def listed(self, reference: str, path: str = "", *, task: int | None = None) -> Listing:
        """List files that a job's tasks have stored.

        Args:
            reference: Id or name of the job.
            path: A file or a directory: ``outputs``, ``checkpoints`` or ``logs``, or below one of
                them. All if empty.
            task: Index of the task; all tasks if absent.

        Raises:
            NotFound: There is no such job or task, or it has stored no such file.
            NotAuthorised: The job belongs to another user.
        """
        listing = Listing()
        with self._translated():
            request = pb.ListFilesRequest(job=reference, task=task, path=path)
            for part in self._stub.List(request):
                listing.job, listing.tasks = part.job_id, part.task_count
                listing.files += part.files
        listing.files.sort(key=lambda file: (file.task, file.replica, file.path))
        return listing

    def collect(self, *, dry_run: bool) -> Iterator[pb.Garbage]:
        """Have uploads removed that no job needs, or counted alone; yields the sums so far."""
        with self._translated():
            yield from self._stub.Collect(pb.CollectRequest(dry_run=dry_run))

    def remove(self, reference: str) -> str:
        """Have all removed that an ended job's tasks have stored; once, even if repeated.

        Args:
            reference: Id or name of the job.

        Returns:
            The job's id.

        Raises:
            JobActive: The job has not ended.
            InvalidRequest: An active job reads the files.
        """
        with self._translated():
            request = pb.RemoveFilesRequest(command_id=str(uuid.uuid4()), job=reference)
            return self._stub.Remove(request, timeout=_TIMEOUT_S).job_id

    def pieces(
        self, job: str, wanted: Sequence[tuple[pb.StoredFile, int]], calls: Calls
    ) -> Iterator[pb.FilePiece]:
        """The rest of each file, in order, each from the byte that is named to its size.

        Args:
            job: Id of the job.
            wanted: Files of a listing, each with the byte to begin with.
            calls: Knows the call as long as it lasts.
        """
        entries = [pb.WantedFile(file=file, offset=offset) for file, offset in wanted]
        with self._translated():
            call = self._stub.Get(pb.GetFilesRequest(job=job, files=entries))
            with calls.open(call):
                yield from call

    def table(self, reference: str) -> bytes | None:
        """The table whose rows are the tasks of an array, as it was uploaded; `None` without one.

        Args:
            reference: Id or name of the job.

        Raises:
            NotFound: There is no such job, or its table is not stored any more.
            NotAuthorised: The job belongs to another user.
        """
        from eva_wire.jobfile import MOST_TABLE_BYTES

        data = bytearray()
        with self._translated():
            for chunk in self._stub.Table(pb.TableRequest(job=reference)):
                data += chunk.data
                if len(data) > MOST_TABLE_BYTES:
                    raise InvalidRequest(f"the table of {reference} is larger than any can be")
        return bytes(data) if data else None


class Calls:
    """Calls that are under way, in any thread."""

    def __init__(self) -> None:
        self._open: set[Any] = set()
        self._over = False

    @contextmanager
    def open(self, call: Any) -> Iterator[None]:
        """Count a call as long as a block lasts."""
        self._open.add(call)
        try:
            if self._over:
                call.cancel()
            yield
        finally:
            self._open.discard(call)
            call.cancel()

    def cancel(self) -> None:
        """End all calls, and those that are still to come."""
        self._over = True
        for call in list(self._open):
            call.cancel()
