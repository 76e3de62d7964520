"""A test instance: ``python -m tests.fakes.ec2.machine [options]``, started by the hypervisor.

Its init (`tests.fakes.hosts.init`) does what the image's would: brings up the metadata service,
runs the user data as cloud-init does, keeps the units running that it has enabled, and powers off
when told to. The init knows nothing of Eva.

Exit code 0: the instance was switched off from within.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from configparser import RawConfigParser
from pathlib import Path

from tests.fakes.ec2 import image
from tests.fakes.ec2.metadata import ADDRESS, Metadata
from tests.fakes.hosts import engine, init
from tests.fakes.hosts.blackbox import BlackBox
from tests.fakes.hosts.site import CGROUP
from tests.fakes.patience import DEADLINE_S

MODULE = "tests.fakes.ec2.machine"
BLACK_BOX_PORT = 7999
_TICK_S = 0.1
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DOCKER, _DOCKER_DATA = "docker", Path("/var/lib/docker")
_RECIPE = "recipe"
_USER_DATA = Path("/var/lib/cloud/user-data")


def main() -> int:
    """Be a machine, or its inner process."""
    parser = init.parser("A test instance.")
    parser.add_argument("--docker", type=Path, required=True, help="an engine's data")
    parser.add_argument("--home", type=Path, required=True, help="directory of the instance")
    parser.add_argument("--region", required=True)
    parser.add_argument(
        "--recipe", type=Path, nargs=2, help="a script, and its argument, that made the image"
    )
    options = parser.parse_args()
    if options.init:
        return _Init(options).run()
    code = init.contain(MODULE, options, sys.argv[1:], name=options.home.name)
    return 1 if code is None else code


def _held(directory: Path) -> Path:
    """A path of a directory that this process can use whatever its root is."""
    return Path(f"/proc/self/fd/{os.open(directory, os.O_PATH | os.O_DIRECTORY)}")


class _Init:
    """The inner process, with pid 1 in its namespace."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._home: Path = options.home
        self._region: str = options.region
        self._recipe: list[Path] = options.recipe or []
        self._docker: Path = options.docker
        self._site: Path = options.site
        self._cgroup = f"/{CGROUP}/{options.site.name}/{self._home.name}"
        self._began = time.monotonic()

    def run(self) -> int:
        """Boot, and stay until the instance is switched off; returns an exit code."""
        if not init.plugged_in():
            return 1
        box = BlackBox(_held(self._site / "record"), BLACK_BOX_PORT)
        box.start()
        described = json.loads((self._home / "instance.json").read_text())
        metadata = Metadata(described, _held(self._home / "notices"), self._region)
        metadata.start()
        log = (self._home / "console.log").open("ab")
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        image.lay_out(self._home / "root", logs=self._home / "log")
        engine.lend(self._docker, self._home / "docker", on=self._home / f"root{_DOCKER_DATA}")
        recipe = self._lay_out_recipe()
        image.enter(self._home / "root")
        os.environ.clear()
        os.environ["PATH"] = _PATH
        programs = init.Programs()
        if recipe:
            programs.add(_RECIPE, init.Program(["/bin/bash", *recipe], again=False, always=False))
        else:
            self._run_user_data(programs)
        while not image.POWER_OFF.exists() and not self._overdue():
            for file in image.UNITS.iterdir():
                if file.name not in programs:
                    programs.add(file.name, self._unit(file.name))
            programs.start()
            ended = programs.wait(_TICK_S)
            if any(name == _DOCKER for name, _ in ended):
                engine.PID.unlink(missing_ok=True)
            if (_RECIPE, 0) in ended:
                self._run_user_data(programs)
        programs.stop()
        return 0

    def _lay_out_recipe(self) -> list[str]:
        """Bring what made the image into the root; returns its paths there."""
        for file in self._recipe:
            shutil.copy(file, self._home / "root" / "root")
        return [f"/root/{file.name}" for file in self._recipe]

    def _run_user_data(self, programs: init.Programs) -> None:
        """Ask the metadata service for it and run it, as cloud-init does."""
        _USER_DATA.parent.mkdir(parents=True)
        fetch = (
            f"token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "
            f"http://{ADDRESS}/latest/api/token) && curl -sf -o {_USER_DATA} "
            f'-H "X-aws-ec2-metadata-token: $token" http://{ADDRESS}/latest/user-data'
        )
        subprocess.run(["/bin/sh", "-c", fetch], check=True, timeout=DEADLINE_S)
        _USER_DATA.chmod(0o700)
        programs.add("user data", init.Program([str(_USER_DATA)], again=False, always=False))

    def _overdue(self) -> bool:
        if not image.SCHEDULED.exists():
            return False
        limit = float(image.SCHEDULED.read_text() or "inf")
        return time.monotonic() - self._began > 60 * limit

    def _unit(self, name: str) -> init.Program:
        if name == _DOCKER:  # The image's own, as the network of this machine wants it.
            command = engine.command(_DOCKER_DATA, self._cgroup, live_restore=False)
            # A registry that a test runs has no certificate.
            command.append("--insecure-registry=198.18.0.0/15")
            return init.Program(command, environment={"PATH": _PATH})
        parser = RawConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[method-assign,assignment]
        parser.read(f"/etc/systemd/system/{name}.service")
        service = parser["Service"]
        environment = {"PATH": _PATH}
        if file := service.get("EnvironmentFile"):
            for pair in shlex.split(Path(file).read_text()):
                key, _, value = pair.partition("=")
                environment[key] = value
        return init.Program(
            shlex.split(service["ExecStart"]),
            environment=environment,
            always=service.get("Restart") == "always",
        )


if __name__ == "__main__":
    assert shutil.which("pivot_root")
    sys.exit(main())
