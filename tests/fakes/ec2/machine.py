"""A test instance: ``python -m tests.fakes.ec2.machine [options]``, started by the hypervisor.

As with a test host (`tests.fakes.hosts.machine`) there are two processes: the outer one makes the
namespaces and plugs in the cable, the inner one is the init. This init does what the image's would:
brings up the metadata service, runs the user data as cloud-init does, keeps the units running that
it has enabled, and powers off when told to. It knows nothing of Eva.

Exit code 0: the instance was switched off from within.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from configparser import RawConfigParser
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.ec2 import image
from tests.fakes.ec2.metadata import ADDRESS, Metadata
from tests.fakes.hosts import engine, network
from tests.fakes.hosts.blackbox import BlackBox
from tests.fakes.hosts.process import NAMESPACES, die_with_parent
from tests.fakes.hosts.site import CGROUP

MODULE = "tests.fakes.ec2.machine"
BLACK_BOX_PORT = 7999
_READY = b"ready\n"
_TICK_S = 0.1
_RESTART_S = 1.0
_STOP_S = 20.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USER_DATA = Path("/var/lib/cloud/user-data")


def main() -> int:
    """Be a machine, or its inner process."""
    parser = argparse.ArgumentParser(prog="machine", description="A test instance.")
    parser.add_argument("--init", action="store_true", help="be the inner process")
    parser.add_argument("--switch", type=int, required=True, help="pid of the network")
    parser.add_argument("--prefix", required=True, help="of the network's addresses")
    parser.add_argument("--site", type=Path, required=True, help="directory of the cluster")
    parser.add_argument("--docker", type=Path, required=True, help="an engine's data")
    parser.add_argument("--home", type=Path, required=True, help="directory of the instance")
    parser.add_argument("--region", required=True)
    options = parser.parse_args()
    return _Init(options).run() if options.init else _outer(options)


def _held(directory: Path) -> Path:
    """A path of a directory that this process can use whatever its root is."""
    return Path(f"/proc/self/fd/{os.open(directory, os.O_PATH | os.O_DIRECTORY)}")


def _outer(options: argparse.Namespace) -> int:
    """Start the inner process, and stay as long as it and the network do."""
    die_with_parent()
    instance = options.home.name
    switch = os.pidfd_open(options.switch)
    init = subprocess.Popen(
        [*NAMESPACES, sys.executable, "-P", "-m", MODULE, "--init", *sys.argv[1:]],
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
        return 1
    return init.wait()


@dataclass
class _Unit:
    """A program that init keeps running.

    Attributes:
        always: Whether it is started again after it has ended well, too.
    """

    command: list[str]
    environment: dict[str, str]
    always: bool = False
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0
    over: bool = False


class _Init:
    """The inner process, with pid 1 in its namespace."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._home: Path = options.home
        self._region: str = options.region
        self._docker: Path = options.docker
        self._site: Path = options.site
        self._cgroup = f"/{CGROUP}/{options.site.name}/{self._home.name}"
        self._units: dict[str, _Unit] = {}
        self._began = time.monotonic()

    def run(self) -> int:
        """Boot, and stay until the instance is switched off; returns an exit code."""
        sys.stdout.buffer.write(_READY)
        sys.stdout.flush()
        if sys.stdin.buffer.readline() != _READY:
            return 1
        box = BlackBox(_held(self._site / "record"), BLACK_BOX_PORT)
        box.start()
        described = json.loads((self._home / "instance.json").read_text())
        metadata = Metadata(described, _held(self._home / "notices"), self._region)
        metadata.start()
        data = self._home / "docker"
        if not data.exists():
            engine.clone(self._docker, data)
        log = (self._home / "console.log").open("ab")
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        image.lay_out(self._home / "root", data)
        image.enter(self._home / "root")
        os.environ.clear()
        os.environ["PATH"] = _PATH
        boot = self._run_user_data()
        while not image.POWER_OFF.exists() and not self._overdue():
            self._look_after_units()
            if boot and (code := boot.poll()) is not None:
                print(f"user data ended with {code}", flush=True)
                boot = None
            time.sleep(_TICK_S)
        self._stop_units()
        return 0

    def _run_user_data(self) -> subprocess.Popen[bytes]:
        """Fetch it from the metadata service and run it, as cloud-init does."""
        _USER_DATA.parent.mkdir(parents=True)
        fetch = (
            f"token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "
            f"http://{ADDRESS}/latest/api/token) && curl -sf -o {_USER_DATA} "
            f'-H "X-aws-ec2-metadata-token: $token" http://{ADDRESS}/latest/user-data'
        )
        subprocess.run(["/bin/sh", "-c", fetch], check=True, timeout=30)
        _USER_DATA.chmod(0o700)
        return subprocess.Popen([str(_USER_DATA)], stdin=subprocess.DEVNULL)

    def _overdue(self) -> bool:
        if not image.SCHEDULED.exists():
            return False
        limit = float(image.SCHEDULED.read_text() or "inf")
        return time.monotonic() - self._began > 60 * limit

    def _look_after_units(self) -> None:
        for file in image.UNITS.iterdir():
            unit = self._units.setdefault(file.name, self._unit(file.name))
            ended = unit.process is not None and unit.process.poll() is not None
            if ended and unit.process is not None:
                print(f"{file.name} ended with {unit.process.returncode}", flush=True)
                unit.over = unit.process.returncode == 0 and not unit.always
                unit.process, unit.start_at = None, time.monotonic() + _RESTART_S
            if unit.process is None and not unit.over and unit.start_at <= time.monotonic():
                engine.PID.unlink(missing_ok=True) if file.name == "docker" else None
                unit.process = subprocess.Popen(
                    unit.command, env=unit.environment, start_new_session=True
                )

    def _unit(self, name: str) -> _Unit:
        if name == "docker":  # The image's own, as the network of this machine wants it.
            command = engine.command(Path("/var/lib/docker"), self._cgroup, live_restore=False)
            return _Unit(command, {"PATH": _PATH}, always=True)
        parser = RawConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[method-assign,assignment]
        parser.read(f"/etc/systemd/system/{name}.service")
        service = parser["Service"]
        environment = {"PATH": _PATH}
        if file := service.get("EnvironmentFile"):
            for pair in shlex.split(Path(file).read_text()):
                key, _, value = pair.partition("=")
                environment[key] = value
        return _Unit(
            shlex.split(service["ExecStart"]),
            environment,
            always=service.get("Restart") == "always",
        )

    def _stop_units(self) -> None:
        """End the units in good order, the engine last."""
        for unit in reversed(list(self._units.values())):
            if unit.process is not None and unit.process.poll() is None:
                unit.process.send_signal(signal.SIGTERM)
                try:
                    unit.process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    unit.process.kill()


if __name__ == "__main__":
    assert shutil.which("pivot_root")
    sys.exit(main())
