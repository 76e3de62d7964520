"""Files and logs of tasks, which a browser stores and never shows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from google.protobuf.message import Message
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_wire.values.errors import NotFound

Stream = Callable[[str, Message], AsyncGenerator[Any, None]]
"""Calls a method that answers with a stream, such as ``Files/Get``, on behalf of a viewer."""


class Download(Response):
    """Bytes that a browser stores in a file.

    Args:
        name: Name of the file.
        pieces: Its content.
        size: Bytes of it; `None` if that is not known.
    """

    def __init__(self, name: str, pieces: AsyncGenerator[bytes, None], size: int | None) -> None:
        super().__init__(media_type="application/octet-stream")
        self._pieces = pieces
        self._first = b""
        del self.headers["content-length"]
        if size is not None:
            self.headers["content-length"] = str(size)
        # A name that is not plain is written in one way alone, so that no two can be told apart.
        self.headers["content-disposition"] = f"attachment; filename*=utf-8''{quote(name, safe='')}"

    async def begun(self) -> Download:
        """Itself, once the first piece is there.

        Raises:
            EvaError: The viewer may not have it, or there is none.
        """
        self._first = await anext(self._pieces, b"")
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the content as fast as the browser takes it."""
        async with aclosing(self._pieces):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, self._first, more=True)
            async for piece in self._pieces:
                await self._send(send, piece, more=True)
            await self._send(send, b"", more=False)

    @staticmethod
    async def _send(send: Send, data: bytes, *, more: bool) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": more})


async def log_of(stream: Stream, job: str, task: str) -> Download:
    """The whole log of a task so far.

    Args:
        stream: Calls methods.
        job: Id of the job.
        task: Index of the task.

    Raises:
        EvaError: There is no such task, or no log of it.
    """
    index, _ = _run(task)
    chunks = stream("Jobs/Logs", pb.LogsRequest(job=job, task=index))
    return await Download(f"{job}-{index}.log", _data(chunks), None).begun()


async def file_of(stream: Stream, job: str, run: str, path: str) -> Download:
    """A file that a task has stored.

    Args:
        stream: Calls methods.
        job: Id of the job.
        run: Index of the task, and after a plus sign the number of an extra run: ``3+1``.
        path: The file, such as ``outputs/model.bin``.

    Raises:
        EvaError: The viewer may not have it, or there is none.
    """
    index, replica = _run(run)
    request = pb.ListFilesRequest(job=job, task=index, path=path)
    file = None
    async with aclosing(stream("Files/List", request)) as parts:
        async for part in parts:
            same = (entry for entry in part.files if entry.path == path)
            file = next((entry for entry in same if entry.replica == replica), file)
    if file is None:
        raise NotFound(f"task {run} of job {job} has stored no file {path[:200]!r}")
    pieces = stream("Files/Get", pb.GetFilesRequest(job=job, files=[pb.WantedFile(file=file)]))
    name = path.rpartition("/")[2]
    return await Download(name, _data(pieces), file.size).begun()


async def _data(messages: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(messages):
        async for message in messages:
            if message.data:
                yield message.data


def _run(text: str) -> tuple[int, int]:
    """The task and the extra run in a path; raises `NotFound`."""
    index, _, replica = text.partition("+")
    parts = index, replica or "0"
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise NotFound(f"{text[:50]!r} is no task")
    return int(parts[0]), int(parts[1])
