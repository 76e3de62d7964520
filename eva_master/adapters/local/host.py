"""An emulated instance: ``python -m eva_master.adapters.local.host [options] -- WORKER...``.

The process acts as the machine of its worker and tasks: all their processes remain its descendants
(it is a child subreaper), their reads share one link. SIGTERM shuts it down as a machine is: its
worker is asked to leave and may take its time. A second SIGTERM switches it off.
`eva_master.adapters.local.cloud` starts it, and it outlives the master. Standard library only.

Exit codes: 0 after a power-off, 1 when the master died before it had recorded the host.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from eva_master.adapters.local.dataserver import DataServer
from eva_master.model.states import shell_code

RESTART_S = 1.0
"""Seconds until a dead worker is started again, as a machine's init would."""

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGTERM, signal.SIGCHLD}
_POLL_S = 0.005
_WORKER_LOG = "worker.log"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the machine until it is switched off."""
    options = _parser().parse_args(arguments)
    # Done before any thread starts, since threads inherit the mask and signals are waited for.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    if not _written_down():
        return 1
    os.chdir(options.directory)
    _become_subreaper()
    server = DataServer(options.rate, options.data_address)
    server.start()
    worker = [
        *options.worker,
        *("--task-env", f"EVA_DATA_SERVER={server.url}"),
        *("--task-env", f"EVA_HOST={os.environ['EVA_HOST']}"),
    ]
    left = _run(worker, options.boot_delay_ms / 1000)
    if left:
        _shut_down(left)
    _power_off()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eva-host", description="An emulated instance.")
    parser.add_argument("--rate", type=int, required=True, help="bytes/s of the data server")
    parser.add_argument("--data-address", default="127.0.0.1", help="of the data server")
    parser.add_argument("--boot-delay-ms", type=int, default=0, help="before the worker starts")
    parser.add_argument("--directory", type=Path, required=True, help="where it runs and logs")
    parser.add_argument("worker", nargs="+", help="command that runs the worker")
    return parser


def _written_down() -> bool:
    """Wait until the master confirms that this process is recorded.

    An unrecorded host would run and be billed unnoticed. The master confirms by a byte on stdin;
    the end of stdin means that it died before.
    """
    word = sys.stdin.buffer.read(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return bool(word)


def _become_subreaper() -> None:
    """Adopt orphaned descendants of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a child subreaper")


def _run(command: list[str], boot_delay_s: float) -> int:
    """Keep the worker running until SIGTERM or until it exits with 0, which shuts the host down.

    Returns:
        The worker's pid, 0 if it does not run.
    """
    worker = 0
    start_at = time.monotonic() + boot_delay_s
    while True:
        if not worker and time.monotonic() >= start_at:
            worker = _spawn(command)
        received = (
            signal.sigwaitinfo(_SIGNALS)
            if worker
            else signal.sigtimedwait(_SIGNALS, max(0.0, start_at - time.monotonic()))
        )
        if received is not None and received.si_signo == signal.SIGTERM:
            return worker
        for pid, status in _reaped():
            if pid != worker:
                continue
            code = shell_code(os.waitstatus_to_exitcode(status))
            if code == 0:
                return 0
            print(f"worker exited with {code}; starting it again", flush=True)  # noqa: T201
            worker, start_at = 0, time.monotonic() + RESTART_S


def _shut_down(worker: int) -> None:
    """Ask the worker to leave, and wait until it has or until a second SIGTERM.

    The worker stops its tasks, stores their files and reports how they ended. What was suspended
    goes on for that: an init does the same, since a stopped process cannot heed its signal.
    """
    os.kill(worker, signal.SIGTERM)
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    while worker not in (pid for pid, _ in _reaped()):
        if signal.sigwaitinfo(_SIGNALS).si_signo == signal.SIGTERM:
            return


def _spawn(command: list[str]) -> int:
    """Start the worker with its output in a file and no signal blocked."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, _WORKER_LOG, flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsigmask=[],
    )


def _reaped() -> Iterator[tuple[int, int]]:
    """Collect children that have ended: pid and wait status of each."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def _power_off() -> None:
    """Kill all descendants of this process, until none is left."""
    while True:
        for pid in _descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for _ in _reaped():
            pass
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        time.sleep(_POLL_S)


def _descendants(root: int) -> list[int]:
    """Pids of all processes below `root`."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                stat = Path(entry.path, "stat").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            # The name in parentheses may hold anything; state and parent follow its end.
            parent = int(stat.rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    unseen = [root]
    while unseen:
        below = children.get(unseen.pop(), [])
        found += below
        unseen += below
    return found


if __name__ == "__main__":
    sys.exit(main())
