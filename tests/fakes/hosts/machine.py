"""A test host: ``python -m tests.fakes.hosts.machine [options] -- WORKER...``.

It takes the place of the worker below a host process of the local cloud
(`eva_master.adapters.local.host`), which thereby is the rack that this machine hangs in: it
restarts a machine that crashes, and is gone with it when it is switched off.

Two processes. The outer one makes the namespaces and plugs the cable in. The inner one is the init
of the new process namespace: it keeps the engine and the worker running. When it dies, the kernel
kills everything in the namespace, containers too; with the last process go mounts and network. It
dies with the outer one, and that when its parent or the network does. So whoever is killed, in
whatever order, nothing of the machine stays but its files.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eva_master.adapters.local.dataserver import DataServer
from tests.fakes.hosts import engine, image, network
from tests.fakes.hosts.blackbox import BlackBox
from tests.fakes.hosts.process import NAMESPACES, die_with_parent, run
from tests.fakes.hosts.site import CGROUP, VARIABLE, Site

RESTART_S = 1.0
"""A service that dies is started again after this time."""
MODULE = "tests.fakes.hosts.machine"
_REPOSITORY = Path(__file__).parents[3]
_MIB = 1024 * 1024
_READY = b"ready\n"


def machine_command(
    site: Site,
    made: Path,
    *,
    read_rate: int = 64 * _MIB,
    disk_mib: int = 0,
    live_restore: bool = True,
) -> list[str]:
    """What to run as a machine of a site; ``--`` and the worker's command are to be appended.

    Args:
        site: Where.
        made: What `image.prepared` returned.
        read_rate: Bytes per second of its data server.
        disk_mib: Size of its disk, 0 for no limit.
        live_restore: Whether containers outlive its engine.
    """
    env = shutil.which("env")
    assert env
    return [
        *(env, f"{VARIABLE}={site.path}", f"PYTHONPATH={_REPOSITORY}"),
        *(sys.executable, "-P", "-m", MODULE),
        *("--switch", str(site.switch.pid)),
        *("--prefix", site.switch.prefix),
        *("--site", str(site.path)),
        *("--image", str(made)),
        *("--rate", str(read_rate)),
        *("--disk-mib", str(disk_mib)),
        *([] if live_restore else ["--no-live-restore"]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Be a machine, or its inner process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(given)
    if options.init:
        return _Init(options).run()
    return _outer(options, given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="machine", description="A test host.")
    parser.add_argument("--init", action="store_true", help="be the inner process")
    parser.add_argument("--switch", type=int, required=True, help="pid of the network")
    parser.add_argument("--prefix", required=True, help="of the network's addresses")
    parser.add_argument("--site", type=Path, required=True, help="directory of the cluster")
    parser.add_argument("--image", type=Path, required=True, help="see the module `image`")
    parser.add_argument("--rate", type=int, required=True, help="bytes/s of the data server")
    parser.add_argument("--disk-mib", type=int, default=0, help="size of its disk, 0 for no limit")
    parser.add_argument("--no-live-restore", action="store_true", help="of the engine")
    parser.add_argument("worker", nargs="+", help="command that runs the worker")
    return parser


def _outer(options: argparse.Namespace, given: list[str]) -> int:
    """Start the inner process, and stay as long as it and the network do."""
    die_with_parent()
    instance = _value(options.worker, "--instance-id")
    switch = os.pidfd_open(options.switch)
    init = subprocess.Popen(
        [*NAMESPACES, sys.executable, "-P", "-m", MODULE, "--init", *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call
    )
    assert init.stdin is not None
    assert init.stdout is not None
    if init.stdout.readline() != _READY:
        return 1
    address = network.reserve(options.site / "addresses", options.prefix, instance)
    network.plug(options.switch, instance, init.pid, address)
    init.stdin.write(_READY)
    init.stdin.close()
    ended = os.pidfd_open(init.pid)
    if switch in select.select([switch, ended], [], [])[0]:
        # With code 0 the rack does not start it again.
        return 0
    return init.wait()


def _value(command: Sequence[str], option: str) -> str:
    return command[command.index(option) + 1]


@dataclass
class _Service:
    """Something that init keeps running."""

    command: list[str]
    log: Path
    pid: int = 0
    start_at: float = 0.0

    def start(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.pid = os.posix_spawnp(
            self.command[0],
            self.command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
        )


class _Init:
    """The inner process, with pid 1 in its namespace."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        here = Path.cwd()
        self._disk = Path(_value(options.worker, "--state-dir"))
        instance = _value(options.worker, "--instance-id")
        self._engine_data = here / "engine"
        cgroup = f"/{CGROUP}/{options.site.name}/{instance}"
        self._engine = _Service(
            engine.command(self._engine_data, cgroup, live_restore=not options.no_live_restore),
            here / "engine.log",
        )
        self._worker = _Service(list(options.worker), here / "worker.log")

    def run(self) -> int:
        """Boot, and stay until the worker has left; returns an exit code."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        sys.stdout.buffer.write(_READY)
        sys.stdout.flush()
        if sys.stdin.buffer.readline() != _READY:
            return 1
        os.dup2(2, 1)
        engine.prepare()
        if self._options.disk_mib:
            self._limit_disk()
        if not self._engine_data.exists():
            engine.clone(self._options.image / "data", self._engine_data)
        self._engine.start()
        data = DataServer(self._options.rate)
        data.start()
        box = BlackBox(self._options.site / "record")
        box.start()
        self._worker.command += [
            *("--runtime", "docker", "--docker-image", image.name(self._options.image)),
            *("--task-env", f"EVA_DATA_SERVER={data.url}"),
            *("--task-env", f"EVA_BLACK_BOX={box.address}"),
        ]
        engine.await_answer()
        return self._supervise()

    def _limit_disk(self) -> None:
        size = f"size={self._options.disk_mib}m"
        run("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self._disk))

    def _supervise(self) -> int:
        """Start services again when they die; ends when the worker does with code 0."""
        while True:
            now = time.monotonic()
            for service in (self._engine, self._worker):
                if not service.pid and service.start_at <= now:
                    if service is self._engine:
                        # Who wrote it is dead, but its number may be somebody else's by now.
                        engine.PID.unlink(missing_ok=True)
                    service.start()
            signal.sigtimedwait({signal.SIGCHLD}, RESTART_S / 4)
            if self._reap():
                return 0

    def _reap(self) -> bool:
        """Collect dead children, of whomever; tells whether the worker has left."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return False
            code = os.waitstatus_to_exitcode(status)
            for service in (self._engine, self._worker):
                if service.pid == pid:
                    print(f"{service.command[0]} exited with {code}", flush=True)
                    if service is self._worker and code == 0:
                        return True
                    service.pid, service.start_at = 0, time.monotonic() + RESTART_S


if __name__ == "__main__":
    sys.exit(main())
