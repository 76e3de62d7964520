"""Reports the program's progress to the agent on the instance, from a thread of its own.

This module imports grpc and is itself imported only inside Eva.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from eva_iterator._progress import Progress
from eva_iterator._proto.iterator_pb2 import ReportRequest, ReportResponse
from eva_iterator._proto.iterator_pb2_grpc import IteratorStub

RPC_TIMEOUT_S = 1.0
"""Longest wait in seconds for the answer to a report; the next report contains this one."""

FLUSH_TIMEOUT_S = 10.0
"""Longest wait in seconds for the last report, which gives an agent time to restart."""

STOPPING_TIMEOUT_S = 2.0
"""Timeout for a program that was asked to stop, whose grace period runs."""

_FIRST_INTERVAL_S = 1.0
_INTERVAL_BOUNDS_S = (0.01, 60.0)
_RETRY_S = 1.0

# By default a channel whose agent was away for long tries again every two minutes.
_CHANNEL_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

SECRET_VARIABLE = "EVA_SOCKET_SECRET"  # noqa: S105 - names, as the next one
_SECRET = "eva-socket-secret"  # noqa: S105

_log = logging.getLogger("eva_iterator")


def connect(socket: str) -> grpc.Channel:
    """Opens a channel to the agent, which connects when used and reconnects when needed.

    Args:
        socket: Path of the agent's Unix socket.
    """
    return grpc.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS)


class ReportPart(Protocol):
    """A part of the program that talks with the agent in reports, besides its progress."""

    def said(self) -> dict[str, Any]:
        """Fields of the next report."""

    def hear(self, response: ReportResponse) -> None:
        """Takes note of the answer to a report."""


class Reporter:
    """Background thread that reports a process's progress until it is closed."""

    def __init__(
        self,
        socket: str,
        progress: Progress,
        generation: Callable[[], int],
        part: ReportPart | None = None,
    ) -> None:
        """Prepares the thread without starting it.

        Args:
            socket: Path of the agent's Unix socket.
            progress: The progress to report.
            generation: Reads the newest published checkpoint generation.
            part: Speaks in reports, too; None if nothing else does.
        """
        self._channel = connect(socket)
        self._progress = progress
        self._generation = generation
        self._part = part
        self._source = uuid.uuid4().hex
        # Tells the agent, besides what the kernel says, that this is a process of the task.
        secret = os.environ.get(SECRET_VARIABLE)
        self._metadata = ((_SECRET, secret),) if secret else None
        self._wake = threading.Event()
        self._closing = False
        self._flush_timeout_s = FLUSH_TIMEOUT_S
        self._calling = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="eva-iterator", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Asks for a report now."""
        self._wake.set()

    def close(self, *, stopping: bool = False) -> None:
        """Sends a last report and ends the thread.

        Args:
            stopping: Whether the program was asked to stop, so that it has not much time.
        """
        if stopping:
            self._flush_timeout_s = STOPPING_TIMEOUT_S
        self._closing = True
        self._wake.set()
        self._thread.join(RPC_TIMEOUT_S + self._flush_timeout_s)

    def pause(self) -> bool:
        """Waits until no call is in progress, and prevents new ones until `resume`.

        Returns:
            Whether the calls are paused; they are, unless a call outlives its time.
        """
        return self._calling.acquire(timeout=FLUSH_TIMEOUT_S + RPC_TIMEOUT_S)

    def resume(self) -> None:
        """Allows calls again after `pause`."""
        self._calling.release()

    def _run(self) -> None:
        with self._channel as channel:
            stub = IteratorStub(channel)
            report_at_s = time.monotonic()
            while not self._closing:
                now_s = time.monotonic()
                wait_s = min(report_at_s, self._progress.mark_due(now_s)) - now_s
                woken = self._wake.wait(max(wait_s, 0.0))
                self._wake.clear()
                if woken or time.monotonic() >= report_at_s:
                    report_at_s = time.monotonic() + self._report(stub)
            self._report(stub, last=True)

    def _report(self, stub: IteratorStub, *, last: bool = False) -> float:
        """Sends one report; returns the seconds until the next."""
        timeout_s = self._flush_timeout_s if last else RPC_TIMEOUT_S
        try:
            with self._calling:
                response = stub.Report(
                    self._request(),
                    timeout=timeout_s,
                    wait_for_ready=last,
                    metadata=self._metadata,
                )
        except (grpc.RpcError, OSError) as error:
            _log.debug("report failed: %s", error)
            return _RETRY_S
        if self._part is not None:
            self._part.hear(response)
        if not response.interval_ms:
            return _FIRST_INTERVAL_S
        shortest_s, longest_s = _INTERVAL_BOUNDS_S
        return min(max(response.interval_ms / 1000, shortest_s), longest_s)

    def _request(self) -> ReportRequest:
        # A checkpoint is there a moment before its steps are noted, and may be another process's.
        generation = self._generation()
        return ReportRequest(
            source=self._source,
            steps=self._progress.steps(),
            total_steps=self._progress.total_steps,
            generation=generation,
            saved_steps=self._progress.saved_steps(generation),
            metrics=dict(self._progress.metrics),
            **({} if self._part is None else self._part.said()),
        )
