"""Commands beside a task in its container, by the engine's exec."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from eva_worker.errors import AttachRefused
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.process.exits import shell_code
from eva_worker.runtime.attaching import (
    ERROR,
    FRAME_BYTES,
    MARK,
    NOT_PASSED_ON,
    OUTPUT,
    AttachedCommand,
    Size,
)
from eva_worker.runtime.docker import handing
from eva_worker.runtime.docker.engine import FAILURES, in_thread, reason
from eva_worker.runtime.docker.parent import TEMPORARY

_DIRECTORY = "execs"
_HEADER = struct.Struct(">B3xI")
"""Before each piece of output without a terminal: the stream, and how many bytes follow."""
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 1.0
"""Pauses between looks at a command: short ones once it may have ended, then longer ones."""
_DEATH_S = 5.0
_SHELL = 'set -- "$(command -v bash || echo /bin/sh)"'
_BEGIN = f"""[ -n "${{TMPDIR+stated}}" ] || export TMPDIR={TEMPORARY}
[ -n "${{PYTHONUNBUFFERED+stated}}" ] || export PYTHONUNBUFFERED=1
unset {" ".join(NOT_PASSED_ON)}
[ $# != 0 ] || {_SHELL}
exec "$@\""""


@dataclass(frozen=True, slots=True)
class Started:
    """A command that the engine has started.

    Attributes:
        client: A `docker.DockerClient`.
        id: The engine's name for the command.
        connection: Carries input and output.
        early: Output that had come with the engine's answer.
        terminal: Whether it has a terminal.
        record: File that names it, which goes with it.
        space: Names the container's namespace of process ids; empty if that cannot be seen.
    """

    client: Any
    id: str
    connection: socket.socket
    early: bytes
    terminal: bool
    record: Path
    space: str


class EngineExecution:
    """A command that the engine runs; see `Execution`. Create it in a running event loop."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._connection = started.connection
        self._buffer = started.early
        self._uses = 0
        self._ended = False
        self._session = 0
        self._may_be_over = asyncio.Event()
        self._watch = asyncio.create_task(self._wait(), name=f"exec {started.record.name}")

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """See `Execution.output`."""
        while self._started.terminal and (data := await self._some(FRAME_BYTES)):
            yield OUTPUT, data
        while not self._started.terminal and (header := await self._exactly(_HEADER.size)):
            stream, size = _HEADER.unpack(header)
            while size and (data := await self._some(min(size, FRAME_BYTES))):
                size -= len(data)
                yield ERROR if stream == ERROR else OUTPUT, data
        self._may_be_over.set()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep the connection open while it is waited for; see `end`."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1
            self._close_unused()

    def _close_unused(self) -> None:
        if self._ended and not self._uses:
            self._connection.close()

    async def _some(self, most: int) -> bytes:
        """Up to so many bytes of what comes; none at the end."""
        if not self._buffer:
            loop = asyncio.get_running_loop()
            try:
                with self._in_use():
                    self._buffer = await loop.sock_recv(self._connection, FRAME_BYTES)
            except OSError:  # The engine has gone.
                return b""
        data, self._buffer = self._buffer[:most], self._buffer[most:]
        return data

    async def _exactly(self, size: int) -> bytes:
        """The next bytes; none at the end."""
        data = b""
        while len(data) < size:
            piece = await self._some(size - len(data))
            if not piece:
                return b""
            data += piece
        return data

    async def write(self, data: bytes) -> None:
        """See `Execution.write`."""
        with contextlib.suppress(OSError), self._in_use():
            await asyncio.get_running_loop().sock_sendall(self._connection, data)

    async def end_input(self) -> None:
        """See `Execution.end_input`. On a terminal that is the end-of-file character."""
        if self._started.terminal:
            await self.write(b"\x04")
        else:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    async def resize(self, size: Size) -> None:
        """See `Execution.resize`."""
        if self._started.terminal:
            with contextlib.suppress(*FAILURES):
                await in_thread("resize", lambda: _resize(self._started, size))

    async def wait(self) -> int:
        """See `Execution.wait`."""
        return await asyncio.shield(self._watch)

    @property
    def refusal(self) -> str:
        """See `Execution.refusal`: the engine says it at once."""
        return ""

    async def end(self, within_s: float) -> None:
        """See `Execution.end`."""
        if not self._watch.done() and within_s > 0:
            await asyncio.to_thread(self._signal, signal.SIGHUP)
            self._may_be_over.set()
            await asyncio.wait({self._watch}, timeout=within_s)
        if not self._watch.done():
            await asyncio.to_thread(self._signal, signal.SIGKILL)
            self._may_be_over.set()
            await asyncio.wait({self._watch}, timeout=_DEATH_S)
        self._ended = True
        # Whatever waits for the connection is woken by this, and by its mere end it is not.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._close_unused()

    def _signal(self, number: int) -> None:
        started = self._started
        for process in _processes(started.record.name, self._session, started.space):
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)

    async def _wait(self) -> int:
        """Wait for the end of the first process, then end the others."""
        started, pause_s, code = self._started, _FIRST_LOOK_S, None
        while (state := await self._look()) is not None:
            code = state["ExitCode"]
            if not state["Running"] and (code is not None or self._session):
                break  # Before it has begun it does not run either, and has no code.
            if state["Pid"] and not self._session:
                self._session = state["Pid"]
                await asyncio.to_thread(self._note_session)
            try:
                async with asyncio.timeout(pause_s):
                    await self._may_be_over.wait()
                self._may_be_over.clear()
                pause_s = _FIRST_LOOK_S
            except TimeoutError:
                pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
        await asyncio.to_thread(_end_all, started.record.name, self._session, started.space)
        await asyncio.to_thread(started.record.unlink, missing_ok=True)
        return shell_code(-signal.SIGKILL) if code is None else int(code)

    def _note_session(self) -> None:
        document = {"session": self._session, "space": self._started.space}
        with contextlib.suppress(OSError):  # A full disk; the mark is left.
            write_json(self._started.record, document)

    async def _look(self) -> dict[str, Any] | None:
        """The engine's view of the command; `None` if the container has gone, or its engine has."""
        started = self._started
        try:
            look = lambda: started.client.api.exec_inspect(started.id)  # noqa: E731
            state: dict[str, Any] = await in_thread("look at a command", look)
        except FAILURES:
            return None
        return state


def _processes(name: str, session: int, space: str) -> Iterator[psutil.Process]:
    """The processes of a command: its mark is in their environments, or they are of its session.

    A program may clear its environment, and one that has a parent no more is known by its session.

    Args:
        name: The id of the command.
        session: Of its first process; 0 if that is not known.
        space: The container's namespace of process ids, since numbers are used again.
    """
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            own = process.environ().get(MARK) == name
            if not own and session and os.getsid(process.pid) == session:
                own = _space_of(process.pid) == space != ""
            if own:
                yield process


def _space_of(pid: int) -> str:
    """Names the namespace of process ids of a process; empty if that cannot be seen."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    return ""


def _end_all(name: str, session: int, space: str) -> None:
    """Kill all processes of a command; blocks until none is left."""
    while processes := list(_processes(name, session, space)):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=_FIRST_LOOK_S)


async def begin(
    client: Any, container: str, directory: Path, command: AttachedCommand
) -> EngineExecution:
    """Start a command in a container.

    Args:
        client: A `docker.DockerClient`.
        container: Name of the container.
        directory: Directory of the attempt's records.
        command: The command.

    Raises:
        AttachRefused: The container does not run, or the engine refuses.
    """
    try:
        started = await in_thread("exec", lambda: _start(client, container, directory, command))
    except FAILURES as error:
        raise AttachRefused(f"the command cannot be started: {reason(error)}") from error
    return EngineExecution(started)


def _start(client: Any, container: str, directory: Path, command: AttachedCommand) -> Started:
    record = directory / _DIRECTORY / command.id
    # On disk before anything runs, so that the next agent ends what this one has begun.
    write_json(record, {})
    api, terminal = client.api, command.terminal is not None
    attributes = api.inspect_container(container)
    begin = handing.READ_AGAIN + _sized(command) + _BEGIN
    arguments = ["/bin/sh", "-c", begin, "eva-exec", *command.arguments]
    created = api.exec_create(
        container, arguments, stdin=True, tty=terminal, environment=command.variables
    )
    stream = api.exec_start(created["Id"], tty=terminal, socket=True)
    # The client reads the engine's answer through a buffer, which may hold the first output.
    connection: socket.socket = stream._sock
    connection.setblocking(False)
    buffered = stream._response.raw._fp.fp
    early = buffered.read1(len(ahead)) if (ahead := buffered.peek() or b"") else b""
    space = _space_of(attributes["State"]["Pid"])
    started = Started(client, created["Id"], connection.dup(), early, terminal, record, space)
    os.set_blocking(started.connection.fileno(), False)
    if command.terminal is not None:
        with contextlib.suppress(*FAILURES):  # The command may be over by now.
            _resize(started, command.terminal)
    return started


def _sized(command: AttachedCommand) -> str:
    """A line that sets the size of a terminal before the command looks at it."""
    if command.terminal is None:
        return ""
    return f"stty rows {command.terminal.rows} cols {command.terminal.columns} 2>/dev/null\n"


def _resize(started: Started, size: Size) -> None:
    started.client.api.exec_resize(started.id, height=size.rows, width=size.columns)


def end_recorded(directory: Path) -> None:
    """Kill the commands beside a task that an agent has written down; blocks until none is left."""
    for record in sorted((directory / _DIRECTORY).glob("*")):
        document = read_json(record) or {}
        _end_all(record.name, document.get("session", 0), document.get("space", ""))
        record.unlink(missing_ok=True)
