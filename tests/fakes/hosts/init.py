"""The common part of all machines: namespaces with a cable plugged in, and an init within.

Two processes. The outer one makes the namespaces and plugs the cable in. The inner one is the init
of the new process namespace: it keeps programs running. When it dies, the kernel kills everything
in the namespace, containers too; with the last process go mounts and network. The init dies with
the outer process, and that when its parent or the network does. So whatever is killed, in any
order, nothing of the machine stays but its files.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.hosts import network
from tests.fakes.hosts.process import NAMESPACES, die_with_parent
from tests.fakes.hosts.site import VARIABLE, Site

RESTART_S = 1.0
"""A program that dies is started again after this time."""
_REPOSITORY = Path(__file__).parents[3]
_READY = b"ready\n"
_STOP_S = 20.0


def environment(site: Site) -> dict[str, str]:
    """The part of a test's environment that a machine's process needs."""
    return {VARIABLE: str(site.path), "PYTHONPATH": str(_REPOSITORY)}


def command(module: str, site: Site) -> list[str]:
    """The command of a machine of a site; options of its kind are to be appended."""
    return [
        *(sys.executable, "-P", "-m", module),
        *("--switch", str(site.switch.pid)),
        *("--prefix", site.switch.prefix),
        *("--site", str(site.path)),
    ]


def parser(description: str) -> argparse.ArgumentParser:
    """Reads what `command` says; options of its kind are to be added."""
    made = argparse.ArgumentParser(prog="machine", description=description)
    made.add_argument("--init", action="store_true", help="be the inner process")
    made.add_argument("--switch", type=int, required=True, help="pid of the network")
    made.add_argument("--prefix", required=True, help="of the network's addresses")
    made.add_argument("--site", type=Path, required=True, help="directory of the cluster")
    return made


def contain(
    module: str, options: argparse.Namespace, given: Sequence[str], *, name: str
) -> int | None:
    """Be the outer process: start the inner one, and stay as long as it and the network do.

    Args:
        module: To run as the inner process.
        options: As read by `parser`.
        given: Options as they were given.
        name: Of the machine, in its network.

    Returns:
        The inner one's exit code, `None` if it was the network that ended.
    """
    die_with_parent()
    switch = os.pidfd_open(options.switch)
    init = subprocess.Popen(
        [*NAMESPACES, sys.executable, "-P", "-m", module, "--init", *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call
    )
    assert init.stdin is not None
    assert init.stdout is not None
    if init.stdout.readline() != _READY:
        return 1
    address = network.reserve(options.site / "addresses", options.prefix, name)
    network.plug(options.switch, name, init.pid, address)
    init.stdin.write(_READY)
    init.stdin.close()
    ended = os.pidfd_open(init.pid)
    if switch in select.select([switch, ended], [], [])[0]:
        return None
    return init.wait()


def plugged_in() -> bool:
    """In the inner process: wait for the cable; without one the outer process is dead."""
    sys.stdout.buffer.write(_READY)
    sys.stdout.flush()
    return sys.stdin.buffer.readline() == _READY


@dataclass
class Program:
    """Something that init runs.

    Attributes:
        log: Where its output goes; `None` for where init's goes.
        environment: `None` for init's.
        again: Whether it is started again when it has failed.
        always: Whether also when it has ended well.
    """

    command: Sequence[str]
    log: Path | None = None
    environment: Mapping[str, str] | None = None
    again: bool = True
    always: bool = True
    pid: int = 0
    start_at: float = 0.0
    over: bool = False

    def start(self) -> None:
        """Start it, in a session of its own."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        if self.log is not None:
            actions.append((os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o600))
            actions.append((os.POSIX_SPAWN_DUP2, 1, 2))  # type: ignore[arg-type]
        self.pid = os.posix_spawnp(
            self.command[0],
            self.command,
            os.environ if self.environment is None else self.environment,
            file_actions=actions,
            setsid=True,
            setsigmask=[],
        )

    def ended(self, code: int) -> None:
        """Note that it is dead."""
        self.over = not (self.always or (self.again and code))
        self.pid, self.start_at = 0, time.monotonic() + RESTART_S


class Programs:
    """Programs that init keeps running, in the order in which they came."""

    def __init__(self) -> None:
        # They wait until asked for: no handler, hence no race with one.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        self._all: dict[str, Program] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def add(self, name: str, program: Program) -> None:
        """Run one from now on."""
        self._all[name] = program

    def start(self) -> list[str]:
        """Start what is due; returns the names."""
        now = time.monotonic()
        due = [
            name
            for name, it in self._all.items()
            if not it.pid and not it.over and it.start_at <= now
        ]
        for name in due:
            self._all[name].start()
        return due

    def wait(self, within_s: float) -> list[tuple[str, int]]:
        """Wait for the end of some program, but not for long.

        Returns:
            Name and exit code of each that has ended.
        """
        signal.sigtimedwait({signal.SIGCHLD}, within_s)
        ended = []
        for pid, code in _reap():
            for name, program in self._all.items():
                if program.pid == pid:
                    print(f"{name} ended with {code}", flush=True)
                    program.ended(code)
                    ended.append((name, code))
        return ended

    def stop(self) -> None:
        """End them in good order, one after the other, the first one last."""
        for program in reversed(self._all.values()):
            if program.pid:
                os.kill(program.pid, signal.SIGTERM)
                deadline = time.monotonic() + _STOP_S
                while program.pid and time.monotonic() < deadline:
                    self.wait(RESTART_S / 10)
                if program.pid:
                    os.kill(program.pid, signal.SIGKILL)


def _reap() -> Iterator[tuple[int, int]]:
    """Collect dead children, of whomever; an init has those of all who died before theirs."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)
