"""Commands beside a task that is a plain process: the agent's side of `exec_shim`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from eva_worker.errors import AttachRefused
from eva_worker.process.durable_files import read_json, write_json
from eva_worker.process.exits import shell_code
from eva_worker.process.pids import kill_marked, pidfd, readable, started_at
from eva_worker.runtime.attaching import (
    ERROR,
    FRAME_BYTES,
    HANG_UP_S,
    MARK,
    OUTPUT,
    AttachedCommand,
    Size,
)

_RUN = (
    f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import exec_shim;"
    " sys.exit(exec_shim.main())"
)
_DIRECTORY = "execs"
_DRAIN_S = 2.0
"""How long output is read after the end, should a process that nobody knows hold it open."""
_DEATH_S = 5.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Spawned:
    """A command whose parent has been started.

    Attributes:
        parent: The command's parent.
        control: The socket to it.
        inlet: Descriptor to write to.
        outputs: Descriptors to read from, with their streams.
        terminal: Whether these are a terminal.
        record: File that names the parent, which goes with it.
    """

    parent: subprocess.Popen[bytes]
    control: socket.socket
    inlet: int
    outputs: dict[int, int]
    terminal: bool
    record: Path


class ShimExecution:
    """A command with a parent of its own; see `Execution`. Create it in a running event loop."""

    def __init__(self, spawned: Spawned) -> None:
        self._parent = spawned.parent
        self._control = spawned.control
        self._outputs = spawned.outputs
        self._inlet = spawned.inlet
        self._terminal = spawned.terminal
        self._record = spawned.record
        self._over = asyncio.Event()
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._said = ""
        self._watch = asyncio.create_task(self._wait(), name=f"exec {self._record.name}")

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """See `Execution.output`."""
        while self._outputs and await self._any_readable():
            for descriptor, stream in list(self._outputs.items()):
                if descriptor not in self._outputs:
                    continue  # Closed while its reader had other output in hand.
                try:
                    data = os.read(descriptor, FRAME_BYTES)
                except BlockingIOError:
                    continue
                except OSError:  # The last process has closed the terminal.
                    data = b""
                if data:
                    yield stream, data
                else:
                    self._close_output(descriptor)

    async def _any_readable(self) -> bool:
        """Wait for output or the end of one stream; false if none comes though all is over."""
        loop = asyncio.get_running_loop()
        self._readable.clear()
        for descriptor in self._outputs:
            loop.add_reader(descriptor, self._readable.set)
        ready = asyncio.create_task(self._readable.wait())
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({ready, over}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                await asyncio.wait({ready}, timeout=_DRAIN_S)
            return ready.done()
        finally:
            ready.cancel()
            over.cancel()
            for descriptor in self._outputs:
                loop.remove_reader(descriptor)

    def _close_outputs(self) -> None:
        for descriptor in list(self._outputs):
            self._close_output(descriptor)

    def _close_output(self, descriptor: int) -> None:
        del self._outputs[descriptor]
        # Its number is used again, and the loop would take the next one for it.
        asyncio.get_running_loop().remove_reader(descriptor)
        if descriptor != self._inlet:
            os.close(descriptor)

    async def write(self, data: bytes) -> None:
        """See `Execution.write`."""
        loop, rest = asyncio.get_running_loop(), memoryview(data)
        while rest and self._inlet >= 0 and not self._over.is_set():
            try:
                rest = rest[os.write(self._inlet, rest) :]
            except BlockingIOError:
                self._writable.clear()
                loop.add_writer(self._inlet, self._writable.set)
                try:
                    await self._writable.wait()
                finally:
                    if self._inlet >= 0:
                        loop.remove_writer(self._inlet)
            except OSError:  # No process reads it any more.
                return

    async def end_input(self) -> None:
        """See `Execution.end_input`. On a terminal that is the end-of-file character."""
        if self._terminal:
            await self.write(b"\x04")
        else:
            self._close_input()

    def _close_input(self) -> None:
        self._writable.set()
        if self._inlet >= 0:
            inlet, self._inlet = self._inlet, -1
            asyncio.get_running_loop().remove_writer(inlet)
            if inlet not in self._outputs:
                os.close(inlet)

    async def resize(self, size: Size) -> None:
        """See `Execution.resize`."""
        if self._terminal and self._inlet >= 0:
            set_size(self._inlet, size)

    async def wait(self) -> int:
        """See `Execution.wait`."""
        await asyncio.shield(self._watch)
        word, _, rest = self._said.partition(" ")
        return shell_code(int(rest) if word == "exit" else -signal.SIGKILL)

    @property
    def refusal(self) -> str:
        """Why it never began, once it is over; empty if it did."""
        word, _, rest = self._said.partition(" ")
        return rest if word == "refused" else ""

    async def end(self, within_s: float) -> None:
        """See `Execution.end`."""
        if within_s > 0:
            self._order(b"H")
            await asyncio.wait({self._watch}, timeout=within_s)
        self._order(b"K")
        await asyncio.wait({self._watch}, timeout=_DEATH_S)
        if not self._watch.done():
            self._parent.kill()
            await asyncio.shield(self._watch)
        # Not before: a program that finds its output closed does not come to its own end.
        self._close_outputs()

    def _order(self, order: bytes) -> None:
        if not self._watch.done():
            with contextlib.suppress(OSError):
                self._control.send(order)

    async def _wait(self) -> None:
        """Wait for the end of the parent, which outlives all other processes of the command."""
        # A child keeps its number until it is waited for.
        descriptor = os.pidfd_open(self._parent.pid)
        try:
            await readable(descriptor)
        finally:
            os.close(descriptor)
        await asyncio.to_thread(self._parent.wait)
        with contextlib.suppress(OSError):
            self._said = self._control.recv(4096).decode(errors="replace").strip()
        self._control.close()
        if not self._said:  # The parent was killed, so others may be left.
            await asyncio.to_thread(kill_marked, {MARK: self._record.name})
        await asyncio.to_thread(self._record.unlink, missing_ok=True)
        self._over.set()
        self._close_input()


async def begin(directory: Path, command: AttachedCommand) -> ShimExecution:
    """Start a command beside the task whose shim works in a directory.

    Raises:
        AttachRefused: This machine cannot start it.
    """
    try:
        return ShimExecution(await asyncio.to_thread(_spawn, directory, command))
    except OSError as error:
        raise AttachRefused(f"the command cannot be started: {error.strerror}") from error


def _spawn(directory: Path, command: AttachedCommand) -> Spawned:
    record = directory / _DIRECTORY / command.id
    # On disk before anything runs, so that the next agent ends what this one has begun.
    write_json(record, {})
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        inlet, streams, outputs = _streams(command, ours, theirs)
        control, far = socket.socketpair()
        ours.callback(control.close)
        theirs.callback(far.close)
        parent = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _RUN, str(directory.absolute())],
            stdin=far.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=streams[2],
            pass_fds=streams,
            env={},
            start_new_session=True,
        )
        write_json(record, {"pid": parent.pid, "started": started_at(parent.pid)})
        document = {
            "arguments": list(command.arguments),
            "terminal": command.terminal is not None,
            "env": command.variables,
            "streams": streams,
        }
        message = json.dumps(document).encode()
        control.sendall(len(message).to_bytes(4, "big") + message)
        control.setblocking(False)
        ours.pop_all()
    terminal = command.terminal is not None
    return Spawned(parent, control, inlet, outputs, terminal, record)


def _streams(
    command: AttachedCommand, ours: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> tuple[int, list[int], dict[int, int]]:
    """Descriptors of a command's input, output and errors.

    Args:
        command: The command.
        ours: Closes the agent's ends.
        theirs: Closes the command's ends.

    Returns:
        The end to write to, the ends of the command, and the ends to read from with their streams.
    """
    if command.terminal is not None:
        terminal, end = pty.openpty()
        ours.callback(os.close, terminal)
        theirs.callback(os.close, end)
        set_size(terminal, command.terminal)
        os.set_blocking(terminal, False)
        return terminal, [end] * 3, {terminal: OUTPUT}
    pipes = []
    for stack_of_outlet, stack_of_inlet in ((theirs, ours), (ours, theirs), (ours, theirs)):
        outlet, inlet = os.pipe()
        stack_of_outlet.callback(os.close, outlet)
        stack_of_inlet.callback(os.close, inlet)
        pipes.append((outlet, inlet))
    (input_read, input_write), (output_read, output_write), (error_read, error_write) = pipes
    for descriptor in (input_write, output_read, error_read):
        os.set_blocking(descriptor, False)
    ends = [input_read, output_write, error_write]
    return input_write, ends, {output_read: OUTPUT, error_read: ERROR}


def set_size(terminal: int, size: Size) -> None:
    """Set the size of a terminal; one that is gone has none."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(
            terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0)
        )


def parents(directory: Path) -> list[dict[str, int]]:
    """Records of the parents of commands beside a task, some without a process yet."""
    return [read_json(record) or {} for record in (directory / _DIRECTORY).glob("*")]


def end_recorded(directory: Path) -> None:
    """Kill the commands beside a task that an agent has written down; blocks until none is left.

    Args:
        directory: That of the task's shim.
    """
    for record in sorted((directory / _DIRECTORY).glob("*")):
        document = read_json(record) or {}
        with contextlib.suppress(ProcessLookupError):
            if document:
                _end(document["pid"], document["started"])
        kill_marked({MARK: record.name})
        record.unlink(missing_ok=True)


def _end(pid: int, started: int) -> None:
    """Have the parent of a command kill it, or kill it with its parent."""
    with pidfd(pid, started) as descriptor:
        # The agent's end of its socket is closed, or the task is gone: it ends within this time.
        expiry = time.monotonic() + HANG_UP_S + _DEATH_S
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        while time.monotonic() < expiry:
            try:
                if started_at(pid) != started:
                    return
            except ProcessLookupError:
                return
            time.sleep(_POLL_S)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
