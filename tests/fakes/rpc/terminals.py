"""The `eva` command as a process, at a terminal or between files."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from eva_wire.values.users import Role
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.server import RpcMaster

EVA = (sys.executable, "-m", "eva_client.cli")
# The terminal is the one that the command is interrupted by, and hung up with.
_CONTROLLED = """import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"""


def environment(master: RpcMaster, directory: Path, owner: str = "ana") -> dict[str, str]:
    """Variables for commands of a user of a master."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EVA_")}
    authorities = directory / "authorities.pem"
    authorities.write_bytes(master.authorities)
    return {
        **ours,
        "EVA_ADDRESS": f"127.0.0.1:{master.ports.users}",
        "EVA_TOKEN": master.tokens.create(owner, Role.USER)[1],
        "EVA_CA_FILE": str(authorities),
        "EVA_CONFIG": "",
    }


@dataclass
class AtTerminal:
    """A command at a terminal.

    Attributes:
        process: The command.
        user: The user's side of the terminal.
        shown: All that the terminal has shown.
    """

    process: subprocess.Popen[bytes]
    user: int
    shown: bytes = b""

    async def until_shown(self, text: bytes) -> None:
        """Wait until the terminal shows a text."""
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.shown:
                piece = await asyncio.to_thread(self._read)
                assert piece, self.shown
                self.shown += piece

    def _read(self) -> bytes:
        try:
            return os.read(self.user, 65_536)
        except OSError:  # No process has the terminal open.
            return b""

    def type(self, keys: bytes) -> None:
        """Press some keys."""
        os.write(self.user, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size, of which its programs are told."""
        set_size(self.user, rows, columns)

    def mode(self) -> list[object]:
        """The treatment of keys by the terminal."""
        return list(termios.tcgetattr(self.user))

    async def code(self) -> int:
        """Wait for the command's end; returns its exit code."""
        return await asyncio.to_thread(self.process.wait, DEADLINE_S)


def set_size(terminal: int, rows: int, columns: int) -> None:
    """Give a terminal a size."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def at_terminal(
    env: Mapping[str, str], *arguments: str, size: tuple[int, int] = (24, 80), errors: IO[bytes]
) -> Iterator[AtTerminal]:
    """Run a command at a terminal.

    Args:
        env: Its environment.
        arguments: Its arguments.
        size: Rows and columns of the terminal.
        errors: Gets standard error, which is not the terminal.
    """
    user, theirs = pty.openpty()
    set_size(user, *size)
    with subprocess.Popen(
        [sys.executable, "-c", _CONTROLLED, *EVA[1:], *arguments],
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=errors,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        terminal = AtTerminal(process, user)
        try:
            yield terminal
        finally:
            process.kill()
            if terminal.user >= 0:
                os.close(terminal.user)
