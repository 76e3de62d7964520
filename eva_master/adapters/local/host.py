"""An emulated instance: ``python -m eva_master.adapters.local.host [options] -- WORKER...``.

The process acts as the machine of its worker and tasks: all their processes remain its descendants
(it is a child subreaper), their reads share one link. SIGTERM shuts it down as a machine is: its
worker is asked to leave and may take its time. A second SIGTERM switches it off. SIGUSR1 takes a
spot instance back: its metadata service gives notice, and when that time is over it is off.
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
from eva_master.adapters.local.metadata import MetadataServer
from eva_master.adapters.local.signals import TAKE_BACK, TAKEN_BACK
from eva_wire.values.states import shell_code

RESTART_S = 1.0
"""Seconds until a dead worker is started again, as a machine's init would."""

_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = {signal.SIGTERM, signal.SIGCHLD, TAKE_BACK}
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
    interruption = Interruption(options.spot_notice_ms)
    if interruption.url:
        worker += ["--metadata-url", interruption.url]
    rest_ms = _run(worker, options.boot_delay_ms / 1000, interruption)
    if rest_ms:
        _shut_down(rest_ms, interruption)
    _power_off()
    return 0


class Interruption:
    """The end of a spot instance, once the cloud takes it back.

    Args:
        notice_ms: How long before it the instance's metadata service tells of it, 0 for no notice;
            `None` for an instance on demand, which is never taken back.

    Attributes:
        url: Of the metadata service; empty for none.
    """

    def __init__(self, notice_ms: int | None) -> None:
        self.url = ""
        self._notice_ms = notice_ms
        self._over_at: float | None = None
        if notice_ms:
            self._metadata = MetadataServer()
            self._metadata.start()
            self.url = self._metadata.url

    def begin(self) -> None:
        """Take the instance back, unless that has begun."""
        if self._notice_ms is None or self._over_at is not None:
            return
        self._over_at = time.monotonic() + self._notice_ms / 1000
        Path(TAKEN_BACK).touch()
        print(f"taken back, with {self._notice_ms} ms left", flush=True)  # noqa: T201
        if self._notice_ms:
            self._metadata.announce(time.time_ns() // 1_000_000 + self._notice_ms)

    @property
    def left_s(self) -> float | None:
        """Seconds that the instance has left; `None` if nobody takes it back."""
        return None if self._over_at is None else max(0.0, self._over_at - time.monotonic())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="eva-host", description="An emulated instance.")
    parser.add_argument("--rate", type=int, required=True, help="bytes/s of the data server")
    parser.add_argument("--data-address", default="127.0.0.1", help="of the data server")
    parser.add_argument("--boot-delay-ms", type=int, default=0, help="before the worker starts")
    parser.add_argument("--spot-notice-ms", type=int, help="of a spot instance that is taken back")
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


def _run(command: list[str], boot_delay_s: float, interruption: Interruption) -> int:
    """Keep the worker running until SIGTERM or until it exits with 0, which shuts the host down.

    Returns:
        The worker's pid, 0 if nobody is to wait for it: it does not run, or the cloud has taken the
        instance back.
    """
    worker = 0
    start_at = time.monotonic() + boot_delay_s
    while interruption.left_s != 0:
        if not worker and time.monotonic() >= start_at:
            worker = _spawn(command)
        boots_s = None if worker else max(0.0, start_at - time.monotonic())
        received = _received(boots_s, interruption.left_s)
        if received == signal.SIGTERM:
            return worker
        if received == TAKE_BACK:
            interruption.begin()
        for pid, status in _reaped():
            if pid != worker:
                continue
            code = shell_code(os.waitstatus_to_exitcode(status))
            if code == 0:
                return 0
            print(f"worker exited with {code}; starting it again", flush=True)  # noqa: T201
            worker, start_at = 0, time.monotonic() + RESTART_S
    return 0


def _received(*within_s: float | None) -> int | None:
    """The next signal; `None` if none comes within the shortest of some times."""
    limits = [limit for limit in within_s if limit is not None]
    received = (
        signal.sigtimedwait(_SIGNALS, min(limits)) if limits else signal.sigwaitinfo(_SIGNALS)
    )
    return None if received is None else received.si_signo


def _shut_down(worker: int, interruption: Interruption) -> None:
    """Ask the worker to leave, and wait until it has, until a second SIGTERM or the very end.

    The worker stops its tasks, stores their files and reports how they ended. Suspended processes
    are continued for that, since a stopped process cannot heed its signal.
    """
    os.kill(worker, signal.SIGTERM)
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    while worker not in (pid for pid, _ in _reaped()):
        if _received(interruption.left_s) in (None, signal.SIGTERM):
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
    """Kill all descendants of this process, until none is left.

    All are stopped before the first is killed: no agent sees its tasks die, and reports it.
    """
    while True:
        pids = _descendants(os.getpid())
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
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
    pids: list[int] = []
    unseen = [root]
    while unseen:
        below = children.get(unseen.pop(), [])
        pids += below
        unseen += below
    return pids


if __name__ == "__main__":
    sys.exit(main())
