"""The agent as a task's program sees it: a server on a Unix socket that records the reports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from eva_iterator._proto.iterator_pb2 import ReportRequest, ReportResponse
from eva_iterator._proto.iterator_pb2_grpc import (
    IteratorServicer,
    add_IteratorServicer_to_server,
)

from tests.fakes.paths import short_tempdir
from tests.fakes.patience import DEADLINE_S


class RecordingAgent(IteratorServicer):
    """Records reports; can be stopped and started again.

    Args:
        socket: Where it listens.
        interval_ms: Milliseconds until the next report, as it answers.
    """

    def __init__(self, socket: Path, interval_ms: int = 20) -> None:
        self.socket = socket
        self.reports: list[ReportRequest] = []
        self.secrets: set[str | bytes] = set()
        self.answering = threading.Event()
        self.answering.set()
        self._interval_ms = interval_ms
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Begins to listen."""
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        add_IteratorServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        """Stops listening; connections break and the socket disappears."""
        self.answering.set()
        if self._server is not None:
            self._server.stop(0).wait()
        self.socket.unlink(missing_ok=True)

    def Report(self, request: ReportRequest, context: Any) -> ReportResponse:
        """See iterator.proto; does not answer while `answering` is not set."""
        with self._changed:
            shown = dict(context.invocation_metadata())
            self.secrets.add(shown.get("eva-socket-secret", ""))
            self.reports.append(request)
            self._changed.notify_all()
        self.answering.wait(DEADLINE_S)
        return ReportResponse(interval_ms=self._interval_ms)

    def wait_for(self, condition: Callable[[list[ReportRequest]], bool]) -> None:
        """Waits until the reports so far meet a condition; fails after DEADLINE_S."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.reports), DEADLINE_S)

    @property
    def sources(self) -> dict[str, ReportRequest]:
        """The last report of each source."""
        return {report.source: report for report in list(self.reports)}

    @property
    def last(self) -> ReportRequest:
        """The last report of the only source."""
        (report,) = self.sources.values()
        return report


class Program:
    """A task's program: Python code in a process of its own, which leads a process group.

    Args:
        code: Code of the program.
        directory: Where the code is written and run; checkpoints go to `checkpoints` below it.
        agent: Agent that it reports to; None outside Eva.
        environ: More of its environment.
    """

    def __init__(
        self,
        code: str,
        directory: Path,
        agent: RecordingAgent | None,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.checkpoints = directory / "checkpoints"
        script = directory / "program.py"
        script.write_text(textwrap.dedent(code))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("EVA_", "GRPC_"))}
        # Workers of a data loader listen on sockets there.
        eva = {"EVA_CHECKPOINT_DIR": str(self.checkpoints), "TMPDIR": short_tempdir()}
        if agent is not None:
            eva["EVA_SOCKET"] = str(agent.socket)
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=directory,
            env={**inherited, **eva, **(environ or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.output = ""
        self.errors = ""

    def read_line(self) -> str:
        """Waits for a line of output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def write_line(self, line: str = "") -> None:
        """Sends a line to the program."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def send(self, number: signal.Signals, *, group: bool = False) -> None:
        """Sends a signal to the program, or to all processes of its group."""
        (os.killpg if group else os.kill)(self._process.pid, number)

    def generations(self) -> list[str]:
        """Names of everything among the checkpoints."""
        return sorted(path.name for path in self.checkpoints.iterdir())

    def wait(self) -> int:
        """Waits for the end; returns the exit code. The rest of what it wrote is in `output`."""
        try:
            self.output, self.errors = self._process.communicate(timeout=DEADLINE_S)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.communicate()
        return self._process.returncode

    def finish(self, expected: int = 0) -> None:
        """Waits for the end, which must have this exit code, without a word on stderr."""
        code = self.wait()
        assert (code, self.errors) == (expected, ""), f"exit code {code}\n{self.errors}"
