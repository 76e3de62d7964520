"""The values and the port of commands that run beside a task's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

FRAME_BYTES = 64 * 1024
"""Most bytes that are read at a time."""
HANG_UP_S = 2.0
"""Time from SIGHUP to SIGKILL."""
MARK = "EVA_EXEC"
"""Variable that marks the processes of a command with its id."""
NOT_PASSED_ON = ("EVA_SOCKET", "EVA_SOCKET_SECRET")
"""Variables of a task that a command beside it does not have: its reports are not the task's."""
OUTPUT, ERROR = 1, 2
"""Standard output and standard error."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a terminal, in characters."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class AttachedCommand:
    """A command beside a task's own.

    Attributes:
        id: Its own, which nobody else uses.
        arguments: Program and arguments; a shell if empty.
        terminal: Size of the terminal that it gets; `None` for none.
        term: Kind of that terminal, such as ``xterm-256color``.
    """

    id: str
    arguments: Sequence[str] = ()
    terminal: Size | None = None
    term: str = ""

    @property
    def variables(self) -> dict[str, str]:
        """Variables that it has beside the task's."""
        kind = {"TERM": self.term or "dumb"} if self.terminal else {}
        return {MARK: self.id, **kind}


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """A user's wish to get into a task, as the master passes it on.

    Attributes:
        id: Names it to the master, once.
        command: The command to run; `None` for a connection.
        port: The TCP port of the task to connect to; 0 for none.
        look: Whether to see only if a process of the task listens there.
    """

    id: str
    command: AttachedCommand | None = None
    port: int = 0
    look: bool = False


class Execution(Protocol):
    """A command that runs. When its first process has ended, so have all others of it."""

    def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Output, piece by piece, with its stream; the next piece is read when it is asked for.

        Iterate once. The end comes when the command is over, or has closed all of its output.
        """
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input; returns once it is written. Without a reader it is lost."""
        ...

    async def end_input(self) -> None:
        """Say that no more input comes."""
        ...

    async def resize(self, size: Size) -> None:
        """Change the size of its terminal, if it has one."""
        ...

    async def wait(self) -> int:
        """Wait for its end; returns its exit code, 128 and the number of a signal that ended it."""
        ...

    @property
    def refusal(self) -> str:
        """Why it never began, once it is over; empty if it did."""
        ...

    async def end(self, within_s: float) -> None:
        """Send SIGHUP to all of its processes, and kill what is left after a time.

        Returns when it is over, at once if it was. Of several times the shortest counts.
        """
        ...
