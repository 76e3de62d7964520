"""Where a task's program says how far it is: a gRPC server on a Unix socket of the task's own."""

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

_LONGEST_SOCKET = 107  # sockaddr_un: 108 bytes with the zero at the end.
_INTERVAL_MS = 1_000
_SAVE_EVERY_S = 1.0

_log = structlog.get_logger()


class Counters:
    """What the processes of one attempt have reported.

    Counts are cumulative per source, so a lost or repeated report does no harm. They are saved at
    most once a second: an agent that dies loses at most the last second of a source that never
    reports again.

    Args:
        path: Where they are kept.
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
        """Count on from what the restored checkpoint holds."""
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
        """Take in a report; figures never go backwards, the newest metrics count.

        Args:
            source: Which process says it.
            steps: What it has done in this attempt.
            total: What it will have done in this attempt at the end, 0 if unknown.
            published: The newest checkpoint generation.
            metrics: The program's own figures.
            kept: How many of `steps` that generation holds, 0 if unknown.
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
        """The sum over all sources, on top of what the restored checkpoint holds."""
        return Progress(
            self._base + sum(self._steps.values()),
            self._total and self._base + self._total,
            dict(self._metrics),
            self._published,
        )

    def steps_kept(self, generation: int) -> int:
        """How many steps a checkpoint holds; all that were done, where the program did not say."""
        published, steps = self._kept
        return steps if published == generation else self.progress().steps

    def save(self) -> None:
        """Write what changed since the last time; a disk without room is asked again."""
        if self._dirty:
            document = {
                "steps": self._steps,
                "total": self._total,
                "metrics": self._metrics,
                "published": self._published,
                "base": self._base,
            }
            # Not synced: counts need to survive the agent, a power cut ends the task anyway.
            self._dirty = False
            try:
                write_json(self._path, document, sync=False)
            except OSError as error:
                self._dirty = True
                _log.warning("progress cannot be written down", error=str(error))


class IteratorServer(iterator_pb2_grpc.IteratorServicer):
    """The service ``eva.iterator.v1.Iterator`` for one attempt.

    Args:
        socket: Where it listens; a file that is there already is replaced.
        counters: What it writes to.
    """

    def __init__(self, socket: Path, counters: Counters) -> None:
        self._socket = socket
        self._counters = counters
        self._server: grpc.aio.Server | None = None
        self._saver: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            StartFailed: The socket cannot be made.
        """
        self._socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        iterator_pb2_grpc.add_IteratorServicer_to_server(self, self._server)
        try:
            self._server.add_insecure_port(f"unix:{self._socket}")
            await self._server.start()
            # The directory keeps strangers out; the task may run as another user.
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
        """See iterator.proto."""
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
    """Where the socket of the attempt with this directory is; the same at every call.

    In the directory itself if the name is short enough for a socket, else in a directory of its
    own under ``$XDG_RUNTIME_DIR`` or the system's temporary directory.
    """
    path = directory / "run" / "eva.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET:
        return path
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    name = hashlib.sha256(os.fsencode(directory)).hexdigest()[:20]
    return base / f"eva-{name}" / "eva.sock"


def make_socket_directory(socket: Path) -> None:
    """Make the directory of a socket, for this user only.

    Raises:
        StartFailed: Somebody else has a directory of that name.
    """
    directory = socket.parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if directory.is_symlink() or status.st_uid != os.geteuid():
        raise StartFailed(f"{directory} belongs to somebody else")
    directory.chmod(0o700)


def remove_socket_directory(socket: Path) -> None:
    """Remove the socket and its directory."""
    shutil.rmtree(socket.parent, ignore_errors=True)
