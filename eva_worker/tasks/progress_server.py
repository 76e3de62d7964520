"""Receives the progress that a task's program reports: a gRPC server on a Unix socket per task."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError

from eva_wire._proto import iterator_pb2
from eva_worker.errors import Malformed, StartFailed
from eva_worker.files.beneath import Directory, remove_tree
from eva_worker.files.checkpoints import MOST_GENERATION
from eva_worker.orders import MOST_STEPS, Progress
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.tasks.gate import Gate, Inlet, Owns
from eva_worker.tasks.socket_places import hold

_INTERVAL_MS = 1_000
_SAVE_EVERY_S = 1.0
_METHOD = "/eva.iterator.v1.Iterator/Report"
_SECRET = "eva-socket-secret"  # noqa: S105 - its name
"""Metadata of a report: what the task has in EVA_SOCKET_SECRET."""

# Limits of a task's reports. The master has equal ones (rpc/workers/messages.py).
_MOST_SOURCES = 1_024
_MOST_METRICS = 256
_LONGEST_NAME = 200
"""Bytes of the name of a metric or a source."""
_LONGEST_REPORT = 64 << 10
_MOST_KEPT = 16
"""Checkpoints whose steps are remembered; a program keeps fewer."""
_KEPT_WITHIN_S = 5.0
"""Longest wait for a program to say how many steps a checkpoint contains."""
_POLL_S = 0.05
_REPORTS_PER_S = 200
_BURST = 2_000
_SHARED_PER_S = 100
"""Reports a second that all processes of a task together are asked for."""
_FLOOD_PER_S = 2_000
"""Reports a second that nobody needs and all neighbours pay for, for as long as 10 s."""
_MOST_BEGUN = 10 * _FLOOD_PER_S
_MOST_CALLS = 64
_OPTIONS = (("grpc.max_receive_message_length", 1 << 20),)

_log = structlog.get_logger()


class StepCounters:
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
        self._kept: dict[int, int] = {}
        self._dirty = False
        if self._base + sum(self._steps.values()) > MOST_STEPS or self._total > MOST_STEPS:
            # An agent of an earlier version believed all that it was told.
            self._steps, self._total, self._base = {}, 0, 0

    @property
    def sources(self) -> int:
        """How many processes have reported."""
        return len(self._steps)

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

        Raises:
            Malformed: The report breaks a rule. Nothing of it is taken in.
        """
        self._check(source, {"steps": steps, "total_steps": total, "saved_steps": kept})
        if published > MOST_GENERATION:
            raise Malformed(f"checkpoint generation {published}: at most {MOST_GENERATION}")
        self._check_metrics(metrics)
        self._steps[source] = max(steps, self._steps.get(source, 0))
        self._total = total or self._total
        self._published = max(published, self._published)
        for name, value in metrics.items():
            if math.isfinite(value):
                self._metrics[name] = value
            else:
                self._metrics.pop(
                    name, None
                )  # Metrics that are neither shown nor compared are not kept.
        if published and kept:
            others = sum(n for name, n in self._steps.items() if name != source)
            self._kept[published] = self._base + others + kept
            for generation in sorted(self._kept)[:-_MOST_KEPT]:
                del self._kept[generation]
        self._dirty = True

    def _check(self, source: str, counts: Mapping[str, int]) -> None:
        if len(source.encode()) > _LONGEST_NAME:
            raise Malformed(f"a source of more than {_LONGEST_NAME} bytes")
        if source not in self._steps and len(self._steps) >= _MOST_SOURCES:
            raise Malformed(f"more than {_MOST_SOURCES} sources: each process has one")
        for name, count in counts.items():
            if count > MOST_STEPS:
                raise Malformed(f"{name} is {count}: at most 2^53")
        others = sum(count for name, count in self._steps.items() if name != source)
        for count in counts.values():
            if self._base + others + count > MOST_STEPS:
                raise Malformed("the steps of all processes together are more than 2^53")

    def _check_metrics(self, metrics: Mapping[str, float]) -> None:
        for name in metrics:
            if not name or len(name.encode()) > _LONGEST_NAME or not name.isprintable():
                raise Malformed(
                    f"metric {name[:40]!r}: a name has 1 to {_LONGEST_NAME} bytes, all printable"
                )
        if len(self._metrics.keys() | metrics.keys()) > _MOST_METRICS:
            raise Malformed(f"more than {_MOST_METRICS} metrics")

    def progress(self) -> Progress:
        """The sum over all sources, plus the count in the restored checkpoint."""
        return Progress(
            self._base + sum(self._steps.values()),
            self._total and self._base + self._total,
            dict(self._metrics),
            self._published,
        )

    async def steps_kept(self, generation: int) -> int:
        """How many steps a checkpoint contains; all steps done, if the program does not say.

        A program publishes first and reports then, so this waits a while for the report.
        """
        late = time.monotonic() + _KEPT_WITHIN_S
        while self._steps and generation not in self._kept and time.monotonic() < late:
            await asyncio.sleep(_POLL_S)
        return self._kept.get(generation, self.progress().steps)

    def reports(self) -> bool:
        """Whether the program reports steps."""
        return bool(self._steps)

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


class ReportRate:
    """How many reports of one task are taken in, and how many are too many.

    A program that reports too often loses reports, which does no harm, since the next one has all
    figures. One that goes on at a rate that costs its neighbours fails.

    Args:
        now: A monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._taken_at = self._begun_at = now()
        self._left = float(_BURST)
        self._begun = 0.0

    def take(self) -> bool:
        """Whether the next report is taken in."""
        now = self._now()
        passed, self._taken_at = now - self._taken_at, now
        self._left = min(_BURST, self._left + passed * _REPORTS_PER_S)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def begin(self) -> None:
        """Count a call, whatever becomes of it; raises `Malformed` if there are far too many."""
        now = self._now()
        passed, self._begun_at = now - self._begun_at, now
        self._begun = max(0.0, self._begun - passed * _FLOOD_PER_S) + 1
        if self._begun > _MOST_BEGUN:
            raise Malformed(f"more than {_FLOOD_PER_S} reports a second")


class ReportPart(Protocol):
    """A part of the agent that speaks with a task's program in reports, besides its progress."""

    def hear(self, request: iterator_pb2.ReportRequest) -> None:
        """Take in a report of the program."""
        ...

    def said(self) -> iterator_pb2.ReportResponse:
        """Fields of the answer to the report."""
        ...


class IteratorServer:
    """The service ``Iterator`` on the socket of one attempt.

    Only the attempt's own processes are heard. Messages of others have no effect, neither on the
    progress nor on whether the attempt fails. The task's own messages are checked before they are
    taken in. The first report that breaks a rule ends the attempt; nothing is taken in from then
    on.

    Args:
        socket: Path of the socket.
        counters: Where the reports go.
        refuse: Called once with why the task must fail.
        part: Speaks with the program in reports, too; `None` if nothing else does.
        owns: Says whether a process belongs to the attempt.
        secret: Secret that the attempt's reports show, if they show one; empty if it has none.
    """

    def __init__(
        self,
        socket: Path,
        counters: StepCounters,
        refuse: Callable[[str], None] = lambda _: None,
        part: ReportPart | None = None,
        *,
        owns: Owns,
        secret: str = "",
    ) -> None:
        self._socket = socket
        self._counters = counters
        self._refuse = refuse
        self._part = part
        self._secret = secret
        self._refused = ""
        self._rate = ReportRate()
        self._directory: Directory | None = None
        self._gate = Gate(owns, self._inlet)
        self._inlets: dict[bool, Inlet] = {}
        self._saver: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen on the socket, in the directory that `make_socket_directory` has made.

        Raises:
            StartFailed: The socket cannot be created.
        """
        try:
            # By the descriptor, so that no link can be put in the directory's place meanwhile.
            self._directory = Directory.at(self._socket.parent)
            hold(self._directory)
            await asyncio.to_thread(remove_tree, self._directory.place(self._socket.name))
            await self._inlet(proven=True)
            self._gate.open(self._directory, self._socket.name)
        except (RuntimeError, OSError) as error:
            raise StartFailed(f"cannot listen on {self._socket}: {error}") from error
        self._saver = asyncio.create_task(self._save_regularly())

    async def close(self) -> None:
        """Stop listening and save the counters."""
        if self._saver:
            self._saver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._saver
        await self._gate.close()
        for inlet in self._inlets.values():
            await inlet.close()
        if self._directory:
            with contextlib.suppress(OSError):
                os.unlink(self._socket.name, dir_fd=self._directory.fd)
            self._directory.close()
        self._counters.save()

    async def _inlet(self, proven: bool) -> Inlet:
        """The way to a server of gRPC's, made when it is first asked for.

        Args:
            proven: Whether the kernel has said that callers are processes of the attempt.
        """
        if proven not in self._inlets:
            assert self._directory is not None
            methods = _Methods(self._report, self._begin, self._secret, proven=proven)
            inlet = Inlet(_server(methods), self._directory)
            self._inlets[proven] = inlet
            await inlet.open()
        return self._inlets[proven]

    async def _report(self, data: bytes, context: Any) -> iterator_pb2.ReportResponse:
        """Take in a report of a task's process, as iterator.proto describes it."""
        try:
            if self._refused:
                raise Malformed(self._refused)
            if self._rate.take():
                self._note(data)
        except Malformed as error:
            self._fail(error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        interval_ms = max(_INTERVAL_MS, self._counters.sources * _INTERVAL_MS // _SHARED_PER_S)
        response = iterator_pb2.ReportResponse(interval_ms=interval_ms)
        if self._part is not None:
            response.MergeFrom(self._part.said())
        return response

    def _begin(self) -> None:
        """Count a call. Calls without a report, or with one that is too large, cost as much."""
        try:
            self._rate.begin()
        except Malformed as error:
            self._fail(error)

    def _fail(self, error: Malformed) -> None:
        if not self._refused:
            self._refused = str(error)
            _log.warning("report refused", socket=str(self._socket), reason=str(error))
            self._refuse(f"its program broke a rule of EVA_SOCKET: {error}")

    def _note(self, data: bytes) -> None:
        if len(data) > _LONGEST_REPORT:
            raise Malformed(f"a report of {len(data)} bytes: at most {_LONGEST_REPORT}")
        try:
            request = iterator_pb2.ReportRequest.FromString(data)
        except DecodeError as error:
            raise Malformed("a report that is no ReportRequest of iterator.proto") from error
        self._counters.note(
            request.source,
            steps=request.steps,
            total=request.total_steps,
            published=request.generation,
            metrics=request.metrics,
            kept=request.saved_steps,
        )
        if self._part is not None:
            self._part.hear(request)

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_EVERY_S)
            await asyncio.to_thread(self._counters.save)


class _Methods(grpc.GenericRpcHandler):
    """Hands the bytes of a report over as they are, so that none is refused unseen.

    Args:
        report: Takes in a report.
        begin: Called for each call, of any method, before its report is read.
        secret: Secret that the attempt's reports may show; empty if it has none.
        proven: Whether calls are known to come from the attempt, so that they need not show it: a
            program may have an older release of the SDK.
    """

    def __init__(
        self,
        report: Callable[[bytes, Any], Awaitable[iterator_pb2.ReportResponse]],
        begin: Callable[[], None],
        secret: str,
        *,
        proven: bool,
    ) -> None:
        self._report: Any = grpc.unary_unary_rpc_method_handler(
            report, response_serializer=iterator_pb2.ReportResponse.SerializeToString
        )
        self._elsewhere: Any = grpc.unary_unary_rpc_method_handler(_from_elsewhere)
        self._begin = begin
        self._secret = secret.encode()
        self._proven = proven

    def service(self, handler_call_details: Any) -> Any:
        """See `grpc.GenericRpcHandler`."""
        metadata = handler_call_details.invocation_metadata or ()
        shown = [value for name, value in metadata if name == _SECRET]
        fits = [secrets.compare_digest(value.encode(), self._secret) for value in shown]
        if not self._proven and not (self._secret and any(fits)):
            return self._elsewhere
        self._begin()
        if not all(fits):
            return self._elsewhere
        return self._report if handler_call_details.method == _METHOD else None


async def _from_elsewhere(_: bytes, context: Any) -> None:
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, "this is the socket of another task")


def _server(methods: _Methods) -> Any:
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MOST_CALLS)
    server.add_generic_rpc_handlers((methods,))
    return server
