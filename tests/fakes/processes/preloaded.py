"""Runs `eva` in forks of a process that has imported it, since imports are most of a start's cost.

A fork has arguments, environment, directory, session and streams of its own and runs what
`python -m eva_client.cli` runs. Its name is that of the process which it is a fork of, and
variables that Python itself reads at its start must be those of the tests: see `same_python`.
"""

from __future__ import annotations

import atexit
import faulthandler
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.fakes.paths import short_tempdir

MODULE = "eva_client.cli"
_IMPORTED = (
    __name__,
    MODULE,
    "eva_client.rpc.master",
    "eva_client.cli.views",
    "eva_master.app.commands.serve",
    "eva_master.app.local",
    "eva_master.app.master",
)
_OF_PYTHON = ("LANG", "LC_", "PYTHON", "TZ")
_BEGUN = dict(os.environ)
"""Variables that the tests began with: a test may set some before the first fork, or after it."""
_CONTEXT = multiprocessing.get_context("forkserver")


class Fork:
    """A fork that runs `eva`, with the methods of `subprocess.Popen` that clusters need.

    Args:
        arguments: Of the command.
        env: All of its environment.
        output: File to which standard output is appended.
        errors: That of standard error.
        session: Whether it leads a session of its own.

    Attributes:
        pid: Its number.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        output: Path,
        errors: Path,
        *,
        session: bool = False,
    ) -> None:
        _CONTEXT.set_forkserver_preload(list(_IMPORTED))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", short_tempdir())  # A socket is made there.
            forkserver.ensure_running()
        streams = (str(output), str(errors))
        self._process = _CONTEXT.Process(
            target=_run, args=(list(arguments), dict(env), str(Path.cwd()), streams, session)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """As that of `subprocess.Popen`."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, or `None` while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns the exit code.

        Raises:
            subprocess.TimeoutExpired: The fork still runs.
        """
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired("eva", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Have the kernel end it, if it runs."""
        self.send_signal(signal.SIGKILL)


def same_python(env: Mapping[str, str]) -> bool:
    """Whether Python, started with these variables, would be as it is in a fork."""
    names = {name for name in {*env, *_BEGUN} if name.startswith(_OF_PYTHON)}
    return all(env.get(name) == _BEGUN.get(name) for name in names)


def _run(
    arguments: list[str],
    env: dict[str, str],
    directory: str,
    streams: tuple[str, str],
    session: bool,
) -> None:
    """Run the command in a fork; ends by `SystemExit`, as the command does."""
    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(directory)
    tempfile.tempdir = None
    for number, file in enumerate((os.devnull, *streams)):
        flags = os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY
        os.dup2(os.open(file, flags), number)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    faulthandler.enable()
    sys.argv = [MODULE, *arguments]
    try:
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
