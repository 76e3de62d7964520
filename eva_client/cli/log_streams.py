"""Copies logs of tasks from the master to the terminal, a file or a pipe."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

import click

from eva_client.cli.session import Patience
from eva_client.cli.views.errors import note
from eva_wire.text.escapes import VisibleBytes, escaped_json, visible
from eva_wire.text.moments import date_of
from eva_wire.values.errors import EvaError, Unreachable

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import LogAttempt, LogsRequest

MOST_STREAMS = 32
"""Logs that are read at the same time."""
_LONGEST_LINE = 64 * 1024
"""Bytes of a line that are held back until it ends."""


class Writer(Protocol):
    """Gets the log of one task."""

    def begin(self, attempt: LogAttempt) -> None:
        """Output from here on is of another attempt."""

    def write(self, data: bytes) -> None:
        """Take the next bytes of it."""

    def close(self) -> None:
        """Take note that nothing follows."""


class Plain:
    """Writes the bytes of one log, and on standard error what is between attempts.

    Args:
        out: Gets the bytes.
        raw: Whether they are written as they are, and not without what would control a terminal.
    """

    def __init__(self, out: IO[bytes], *, raw: bool) -> None:
        self._out = out
        self._shown = out if raw else VisibleBytes(out)
        self._amid = False

    def begin(self, attempt: LogAttempt) -> None:
        """Write a line about the attempt, unless it is the first one."""
        if line := between_attempts(attempt):
            if self._amid and sys.stdout.isatty():
                click.echo(err=True)
            note(line)

    def write(self, data: bytes) -> None:
        """Write the bytes as they come."""
        self._shown.write(data)
        self._out.flush()
        self._amid = not data.endswith(b"\n")

    def close(self) -> None:
        """Write what is left of a character."""
        if isinstance(self._shown, VisibleBytes):
            self._shown.close()


class LineSplitter:
    """Splits one log into lines, and hands on each of them.

    Args:
        each: Gets a line without its end, and the number of its attempt.
        begin: Gets what is known of each attempt.
    """

    def __init__(
        self, each: Callable[[bytes, int], None], begin: Callable[[LogAttempt], None]
    ) -> None:
        self._each = each
        self._begin = begin
        self._attempt = 0
        self._rest = b""

    def begin(self, attempt: LogAttempt) -> None:
        """Hand on the line that the attempt before did not end, and that another one begins."""
        self.close()
        self._attempt = attempt.number
        self._begin(attempt)

    def write(self, data: bytes) -> None:
        """Hand on the lines that end here."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._each(line, self._attempt)
        if len(self._rest) > _LONGEST_LINE:
            self.close()

    def close(self) -> None:
        """Hand on a line without an end."""
        if self._rest:
            self._each(self._rest, self._attempt)
            self._rest = b""


def prefixed(out: IO[bytes], lock: threading.Lock, prefix: str, *, raw: bool) -> LineSplitter:
    """Makes a writer of lines behind a prefix, for one of several logs.

    Args:
        out: Gets the bytes.
        lock: Held while a line is written.
        prefix: Names the task.
        raw: See `Plain`.
    """

    def each(line: bytes, _: int) -> None:
        if not raw:
            # A bar that is drawn again and again would overwrite the prefix.
            last = line.rstrip(b"\r").rpartition(b"\r")[2]
            line = visible(last.decode("utf-8", "backslashreplace")).encode()
        with lock:
            out.write(prefix.encode() + line + b"\n")
            out.flush()

    def begin(attempt: LogAttempt) -> None:
        if words := between_attempts(attempt):
            with lock:
                note(f"{prefix}{words}")

    return LineSplitter(each, begin)


def as_json(out: IO[bytes], lock: threading.Lock, job: str, task: int) -> LineSplitter:
    """Makes a writer of one JSON object a line, for one of several logs."""

    def put(**values: object) -> None:
        text = json.dumps({"job": job, "task": task, **values}, ensure_ascii=False)
        with lock:
            out.write(f"{escaped_json(text)}\n".encode())
            out.flush()

    def each(line: bytes, attempt: int) -> None:
        put(attempt=attempt or None, text=line.decode("utf-8", "backslashreplace"))

    def begin(attempt: LogAttempt) -> None:
        put(
            attempt=attempt.number,
            begins={
                "instance": attempt.instance or None,
                "started_ms": attempt.started_ms or None,
                "before_ended_ms": attempt.ended_ms or None,
                "before_ended": attempt.ended or None,
            },
        )

    return LineSplitter(each, begin)


def between_attempts(attempt: LogAttempt) -> str:
    """The line before the output of an attempt; empty for the first one."""
    if attempt.number <= 1:
        return ""
    words = f"attempt {attempt.number}"
    if attempt.instance:
        words += f" on {attempt.instance}"
    if attempt.started_ms:
        words += f", {_clock(attempt.started_ms)}"
    if attempt.ended:
        words += f"; the one before ended {_clock(attempt.ended_ms)}: {attempt.ended}"
    return f"---- {words} ----"


def _clock(at_ms: int) -> str:
    return f"{date_of(at_ms):%Y-%m-%d %H:%M:%S} UTC"


def copy_log(client: Client, request: LogsRequest, writer: Writer) -> None:
    """Copy the log of a task.

    If the master goes away while the log is followed, the call is repeated from where it broke off.

    Raises:
        Unreachable: The master does not answer, or was away for too long.
        NotFound: There is no such log.
    """
    patience = Patience(client)
    attempt = written = 0
    while True:
        skip = written
        try:
            for chunk in client.log_chunks(request):
                patience.restore()
                if chunk.attempt and chunk.attempt != attempt:
                    attempt = chunk.attempt
                    writer.begin(chunk.begins)
                # A master of an earlier release tells no positions, and begins anew.
                data = chunk.data if chunk.attempt else chunk.data[skip:]
                skip -= len(chunk.data) - len(data)
                writer.write(data)
                written += len(data)
                if chunk.attempt:
                    _go_on_from(request, attempt, chunk.offset + len(data))
        except Unreachable as error:
            if not request.follow:
                raise
            patience.pause(error)
        else:
            writer.close()
            return


def _go_on_from(request: LogsRequest, attempt: int, offset: int) -> None:
    """Have the next call begin there."""
    request.ClearField("tail")
    request.last_ms = 0
    request.from_attempt, request.from_offset = attempt, offset


@dataclass(frozen=True, slots=True)
class Stream:
    """The log of one task, and who gets it."""

    request: LogsRequest
    writer: Writer


def copy_logs(client: Client, streams: Sequence[Stream], *, at_once: int) -> None:
    """Copy logs, so many at the same time.

    Raises:
        EvaError: The first one that one of them met; the others were copied all the same.
    """
    waiting: queue.SimpleQueue[Stream] = queue.SimpleQueue()
    for stream in streams:
        waiting.put(stream)
    errors: list[BaseException] = []

    def work() -> None:
        while True:
            try:
                stream = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                copy_log(client, stream.request, stream.writer)
            except (EvaError, OSError) as error:
                errors.append(error)
                if not isinstance(error, EvaError):
                    return

    # They end with the command, which closes the connection when it is interrupted.
    threads = [threading.Thread(target=work, daemon=True) for _ in streams[:at_once]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
