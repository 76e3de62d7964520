"""A test host: ``python -m tests.fakes.hosts.machine [options] -- WORKER...``.

The machine takes the place of the worker below a host process of the local cloud
(`eva_master.adapters.local.host`), which thereby is the rack that this machine hangs in: it
restarts a machine that crashes, and is gone with it when it is switched off. Its init
(`tests.fakes.hosts.init`) keeps the engine and the worker running.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from eva_master.adapters.local.dataserver import DataServer
from tests.fakes.hosts import engine, image, init
from tests.fakes.hosts.blackbox import BlackBox
from tests.fakes.hosts.process import run
from tests.fakes.hosts.site import CGROUP, Site

MODULE = "tests.fakes.hosts.machine"
_MIB = 1024 * 1024
_ENGINE, _WORKER = "engine", "worker"


def machine_command(
    site: Site,
    made: Path,
    *,
    read_rate: int = 64 * _MIB,
    disk_mib: int = 0,
    live_restore: bool = True,
) -> list[str]:
    """The command of a machine of a site; ``--`` and the worker's command are to be appended.

    Args:
        site: Where.
        made: Result of `image.prepared`.
        read_rate: Bytes per second of its data server.
        disk_mib: Size of its disk, 0 for no limit.
        live_restore: Whether containers outlive its engine.
    """
    env = shutil.which("env")
    assert env
    return [
        *(env, *(f"{name}={value}" for name, value in init.environment(site).items())),
        *init.command(MODULE, site),
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
    code = init.contain(MODULE, options, given, name=_value(options.worker, "--instance-id"))
    # With code 0 the rack does not start it again.
    return 0 if code is None else code


def _parser() -> argparse.ArgumentParser:
    parser = init.parser("A test host.")
    parser.add_argument("--image", type=Path, required=True, help="see the module `image`")
    parser.add_argument("--rate", type=int, required=True, help="bytes/s of the data server")
    parser.add_argument("--disk-mib", type=int, default=0, help="size of its disk, 0 for no limit")
    parser.add_argument("--no-live-restore", action="store_true", help="of the engine")
    parser.add_argument("worker", nargs="+", help="command that runs the worker")
    return parser


def _value(command: Sequence[str], option: str) -> str:
    return command[command.index(option) + 1]


class _Init:
    """The inner process, with pid 1 in its namespace."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._here = Path.cwd()
        self._disk = Path(_value(options.worker, "--state-dir"))
        self._cgroup = f"/{CGROUP}/{options.site.name}/{_value(options.worker, '--instance-id')}"

    def run(self) -> int:
        """Boot, and stay until the worker has left; returns an exit code."""
        if not init.plugged_in():
            return 1
        os.dup2(2, 1)
        engine.prepare()
        if self._options.disk_mib:
            self._limit_disk()
        data = self._here / "engine"
        engine.lend(self._options.image / "data", data)
        programs = init.Programs()
        live_restore = not self._options.no_live_restore
        command = engine.command(data, self._cgroup, live_restore=live_restore)
        programs.add(_ENGINE, init.Program(command, self._here / "engine.log"))
        programs.start()
        worker = [*self._options.worker, *self._serve()]
        engine.await_answer()
        programs.add(_WORKER, init.Program(worker, self._here / "worker.log"))
        return self._supervise(programs)

    def _serve(self) -> list[str]:
        """Start what tasks find on this machine; returns what the worker is told of it."""
        data = DataServer(self._options.rate)
        data.start()
        box = BlackBox(self._options.site / "record")
        box.start()
        return [
            *("--runtime", "docker", "--docker-image", image.name(self._options.image)),
            # The engine has no bridge, and what tasks find is on the loopback interface.
            *("--task-network", "host"),
            *("--task-env", f"EVA_DATA_SERVER={data.url}"),
            *("--task-env", f"EVA_BLACK_BOX={box.address}"),
        ]

    def _limit_disk(self) -> None:
        size = f"size={self._options.disk_mib}m"
        run("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self._disk))

    def _supervise(self, programs: init.Programs) -> int:
        """Start programs again when they die; ends when the worker does with code 0."""
        while True:
            programs.start()
            ended = programs.wait(init.RESTART_S / 4)
            if (_WORKER, 0) in ended:
                return 0
            if any(name == _ENGINE for name, _ in ended):
                # The writer is dead, but its number may be another process' by now.
                engine.PID.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
