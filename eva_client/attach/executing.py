"""Runs a command in a task, between this process's standard streams."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from eva_client.attach.places import NamedRun
from eva_wire._proto import attach_pb2 as pb
from eva_wire.values.errors import EvaError, Unreachable

if TYPE_CHECKING:
    from eva_client.rpc.master import Client

FRAME_BYTES = 64 * 1024
_INPUT, _OUTPUT, _ERROR = 0, 1, 2
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_MOST_SIZE = 9_999
_USUAL_SIZE = (80, 24)
"""Columns and rows where a terminal does not know its own, as on some serial lines."""


class Terminal:
    """The terminal that this process runs on."""

    def size(self) -> pb.Size:
        """Its present size."""
        try:
            columns, rows = os.get_terminal_size(_INPUT)
        except OSError:  # The terminal has gone.
            columns, rows = 0, 0
        columns, rows = columns or _USUAL_SIZE[0], rows or _USUAL_SIZE[1]
        return pb.Size(rows=min(rows, _MOST_SIZE), columns=min(columns, _MOST_SIZE))

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Pass every key on: those that interrupt reach the command alone."""
        before = termios.tcgetattr(_INPUT)
        tty.setraw(_INPUT)
        try:
            yield
        finally:
            with contextlib.suppress(termios.error):  # The terminal has gone.
                termios.tcsetattr(_INPUT, termios.TCSADRAIN, before)


class Inputs:
    """The frames of the user's end, as an iterator for gRPC, which reads it in a thread of its own.

    Args:
        opening: The first frame.
        terminal: Where sizes are asked; `None` without one.
        size: The size of the terminal that the first frame tells.
    """

    def __init__(self, opening: pb.Input, terminal: Terminal | None, size: pb.Size | None) -> None:
        self._opening = opening
        self._terminal = terminal
        self._told = size
        self._wakes, self._wake = os.pipe()
        os.set_blocking(self._wake, False)

    def __iter__(self) -> Iterator[pb.Input]:
        yield self._opening
        reads = [_INPUT, self._wakes]
        while True:
            ready, _, _ = select.select(reads, [], [])
            if self._wakes in ready:
                if not os.read(self._wakes, FRAME_BYTES):
                    return
                yield from self._resize()
            elif _INPUT in ready:
                if (data := _read()) is None:
                    continue
                if data:
                    yield from self._resize()  # Its signal may come after keys typed later.
                    yield pb.Input(data=data)
                else:
                    reads.remove(_INPUT)
                    yield pb.Input(end=True)

    def _resize(self) -> Iterator[pb.Input]:
        """The frame of a size that is new."""
        if self._terminal is not None and (size := self._terminal.size()) != self._told:
            self._told = size
            yield pb.Input(resize=size)

    def resized(self, _number: int, _frame: FrameType | None) -> None:
        """Tell of a new size of the terminal."""
        with contextlib.suppress(BlockingIOError):  # That is still to be told.
            os.write(self._wake, b"r")

    def close(self) -> None:
        """End the frames."""
        os.close(self._wake)


def _read() -> bytes | None:
    """The next input, nothing at its end; `None` if another process was quicker."""
    try:
        return os.read(_INPUT, FRAME_BYTES)
    except BlockingIOError:
        return None
    except OSError:  # The terminal has gone.
        return b""


def execute(
    client: Client, place: NamedRun, command: Sequence[str], terminal: Terminal | None
) -> pb.Exit:
    """Run a command in a task; returns how it ended.

    Args:
        client: The connection to the master.
        place: The task.
        command: Program and arguments; a shell if empty.
        terminal: The terminal that the command gets one for; `None` for none.

    Raises:
        EvaError: The command does not run, or its end is not known.
    """
    wanted = pb.Exec(command=command)
    size = None
    if terminal is not None:
        size = terminal.size()
        wanted.terminal.CopyFrom(size)
        wanted.term = os.environ.get("TERM", "")[:64]
    inputs = Inputs(place.opening(pb.Kind(exec=wanted)), terminal, size)
    with contextlib.ExitStack() as stack:
        stack.callback(inputs.close)
        if terminal is not None:
            for number in _ENDING:
                stack.enter_context(_handled(number, _leave))
            stack.enter_context(_handled(signal.SIGWINCH, inputs.resized))
            stack.enter_context(terminal.raw())
            inputs.resized(signal.SIGWINCH, None)  # Its size may have changed before that.
        for frame in client.attach(iter(inputs)):
            match frame.WhichOneof("body"):
                case "data":
                    _write(_OUTPUT, frame.data)
                case "error":
                    _write(_ERROR, frame.error)
                case "exit":
                    return frame.exit
    raise Unreachable("the master has ended the connection, and the command with it")


@contextlib.contextmanager
def _handled(number: signal.Signals, handler: object) -> Iterator[None]:
    before = signal.signal(number, handler)  # type: ignore[arg-type]
    try:
        yield
    finally:
        signal.signal(number, before)


def _leave(number: int, _frame: FrameType | None) -> None:
    """Leave by way of the code that restores the terminal."""
    sys.exit(128 + number)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of some output.

    Raises:
        BrokenPipeError: Its reader is gone.
        EvaError: The stream cannot be written.
    """
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # Another program has set that for all who share the terminal.
            select.select([], [descriptor], [])
        except BrokenPipeError:
            raise
        except OSError as error:
            name = "standard output" if descriptor == _OUTPUT else "standard error"
            raise EvaError(f"{name}: {error.strerror}; the command was ended") from error
