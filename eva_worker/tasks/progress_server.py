"""Receives the progress that a task's program reports: a gRPC server on a Unix socket per task."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import structlog

from eva_worker._proto import iterator_pb2, iterator_pb2_grpc
from eva_worker.errors import StartFailed
from eva_worker.orders import Progress
from eva_worker.process.durable_files import read_json, write_json

_LONGEST_SOCKET = 107  # sockaddr_un holds 108 bytes including the zero at the end.
_INTERVAL_MS = 1_000
_SAVE_EVERY_S = 1.0

_log = structlog.get_logger()


class Counters:
    """The progress that the processes of one attempt have reported.

    Counts are cumulative per source, so a lost or repeated report does no harm. They are saved at
    most once a second. If an agent dies, at most the last second of a source that never reports
    again is lost.

    Args:
        path: File that they are saved in.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        saved: dict[str, Any] = read_json(path) or {}
        self._steps: dict[str, int] = saved.get("steps", {})
        self._total = int(saved.get("total", 0))
        self._metrics: dict[str, float] = saved.get("metrics", {})
        self._published = int(saved.get("published", 0))
        self._base = int(saved.get("base", 0))
        self._kept: tuple[int, int] = (0, 0)
        self._dirty = False

    def begin_from(self, steps: int) -> None:
        """Continue from the count in the restored checkpoint."""
        self._base = steps
        self._dirty = True

    def note(
        self,
        source: str,
        *,
        steps: int,
        total: int = 0,
        published: int = 0,
        metrics: Mapping[str, float] = MappingProxyType({}),
        kept: int = 0,
    ) -> None:
        """Take in a report. Counts never decrease; the newest metrics replace older ones.

        Args:
            source: The process that reports.
            steps: Iterations it has done in this attempt.
            total: Iterations it will have done in this attempt at the end, 0 if unknown.
            published: The newest checkpoint generation.
            metrics: The program's own figures.
            kept: How many of `steps` that generation contains, 0 if unknown.
        """
        self._steps[source] = max(steps, self._steps.get(source, 0))
        self._total = total or self._total
        self._published = max(published, self._published)
        self._metrics.update(metrics)
        if published and kept:
            others = sum(n for name, n in self._steps.items() if name != source)
            self._kept = (published, self._base + others + kept)
        self._dirty = True

    def progress(self) -> Progress:
        """The sum over all sources, plus the count in the restored checkpoint."""
        return Progress(
            self._base + sum(self._steps.values()),
            self._total and self._base + self._total,
            dict(self._metrics),
            self._published,
        )

    def steps_kept(self, generation: int) -> int:
        """How many steps a checkpoint contains; all steps done, if the program did not say."""
        published, steps = self._kept
        return steps if published == generation else self.progress().steps

    def save(self) -> None:
        """Save changes since the last time. If the disk is full, the next call tries again."""
        if self._dirty:
            document = {
                "steps": self._steps,
                "total": self._total,
                "metrics": self._metrics,
                "published": self._published,
                "base": self._base,
            }
            # Not synced: counts must only survive the agent, since a power cut ends the task
            # anyway.
            self._dirty = False
            try:
                write_json(self._path, document, sync=False)
            except OSError as error:
                self._dirty = True
                _log.warning("progress cannot be saved", error=str(error))


class IteratorServer(iterator_pb2_grpc.IteratorServicer):
    """The service ``eva.iterator.v1.Iterator`` for one attempt.

    Args:
        socket: Path that it listens on; an existing file is replaced.
        counters: Takes in the reports.
    """

    def __init__(self, socket: Path, counters: Counters) -> None:
        self._socket = socket
        self._counters = counters
        self._server: grpc.aio.Server | None = None
        self._saver: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen on the socket.

        Raises:
            StartFailed: The socket cannot be created.
        """
        self._socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        iterator_pb2_grpc.add_IteratorServicer_to_server(self, self._server)
        try:
            self._server.add_insecure_port(f"unix:{self._socket}")
            await self._server.start()
            # The directory's mode keeps other users out; the task may run as another user.
            self._socket.chmod(0o666)
        except (RuntimeError, OSError) as error:
            raise StartFailed(f"cannot listen on {self._socket}: {error}") from error
        self._saver = asyncio.create_task(self._save_regularly())

    async def close(self) -> None:
        """Stop listening and save the counters."""
        if self._saver:
            self._saver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._saver
        if self._server:
            await self._server.stop(None)
        self._counters.save()

    async def Report(  # noqa: N802 - gRPC's name
        self, request: iterator_pb2.ReportRequest, context: Any
    ) -> iterator_pb2.ReportResponse:
        """Take in a report of a task's process, as iterator.proto describes it."""
        del context
        self._counters.note(
            request.source,
            steps=request.steps,
            total=request.total_steps,
            published=request.generation,
            metrics=request.metrics,
            kept=request.saved_steps,
        )
        return iterator_pb2.ReportResponse(interval_ms=_INTERVAL_MS)

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_EVERY_S)
            await asyncio.to_thread(self._counters.save)


def socket_path(directory: Path) -> Path:
    """The path of an attempt's socket, by the attempt's directory; the same at every call.

    It is in the directory itself if the name is short enough for a socket, else in a directory of
    its own under the first of these where it is: ``$XDG_RUNTIME_DIR``, the system's temporary
    directory, ``/tmp``.
    """
    path = directory / "run" / "eva.sock"
    name = f"eva-{hashlib.sha256(os.fsencode(directory)).hexdigest()[:20]}"
    bases = (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp")  # noqa: S108
    others = [Path(base, name, "eva.sock") for base in bases if base]
    return next(it for it in (path, *others) if len(os.fsencode(it)) <= _LONGEST_SOCKET)


def make_socket_directory(socket: Path) -> None:
    """Make the directory of a socket, for this user and whom its runtime let in.

    Raises:
        StartFailed: Another user has a directory of that name.
    """
    directory = socket.parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if directory.is_symlink() or status.st_uid != os.geteuid():
        raise StartFailed(f"{directory} belongs to another user")
    # A runtime may have let the group of its tasks in, for a task that still runs.
    directory.chmod(0o700 | status.st_mode & 0o010)


def remove_socket_directory(socket: Path) -> None:
    """Remove the socket and its directory."""
    shutil.rmtree(socket.parent, ignore_errors=True)
