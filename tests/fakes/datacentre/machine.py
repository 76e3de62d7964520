"""A machine: a directory for its root, its user data, and the units that these start."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from configparser import RawConfigParser
from pathlib import Path

import psutil

from tests.fakes.aws.metadata import FakeMetadata
from tests.fakes.aws.service import REGION
from tests.fakes.datacentre.commands import OFF, UNITS, environment, lay_out, within
from tests.fakes.paths import plain_name
from tests.fakes.rpc.ports import free_port

MASTER, WORKER = "eva-master", "eva-worker"
SYSTEMD = Path(__file__).parents[3] / "deploy" / "systemd"
_HEAD = "#!/bin/bash\n"
_END = "--//--"
_PATIENCE_S = 60.0


class Machine:
    """One instance, which may boot several times.

    Args:
        home: A directory of its own; made.
        endpoint: URL of the stand-in.
        address: Where its services listen.
        user_data: As EC2 has it.
        profile: Name of the instance profile, with whose role it calls.
        volumes: By id, the file that stands for each attached disk.
        gpus: How many there are.
    """

    def __init__(
        self,
        home: Path,
        *,
        endpoint: str,
        address: str,
        user_data: str,
        profile: str,
        volumes: Mapping[str, Path],
        gpus: int = 0,
    ) -> None:
        self.home, self.root = home, home / "root"
        self._endpoint, self._address, self._gpus = endpoint, address, gpus
        self._bin = home / "bin"
        # The first line of a script is the same; a master's comes after its cloud-config.
        self._script = user_data.partition(_HEAD)[2].rpartition(_END)[0] or user_data
        self._volumes = volumes
        lay_out(self._bin)
        self.metadata = FakeMetadata()
        self.metadata.give(profile)
        self.metadata.documents["placement/region"] = REGION.encode()
        self._boot: subprocess.Popen[bytes] | None = None
        self._units: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}

    @property
    def console(self) -> str:
        """The end of all that it has said."""
        logs = sorted((self.root / "var/log").glob("*.log")) if self.root.exists() else []
        return "\n".join(log.read_text(errors="replace")[-4000:] for log in logs)

    @property
    def off(self) -> bool:
        """Whether it was switched off from within, or its boot has failed for good."""
        return (self.root / OFF).exists()

    def boot(self) -> None:
        """Run the user data; `look` starts what that enables."""
        for place in ("dev/disk/by-id", "etc/systemd/system", "run", "tmp", "var/log", "mnt"):
            (self.root / place).mkdir(parents=True, exist_ok=True)
        for unit in (self.root / UNITS).glob("*"):
            unit.unlink()
        (self.root / OFF).unlink(missing_ok=True)
        self.plug(self._volumes)
        # A mount does not outlive a boot.
        with contextlib.suppress(OSError):
            (self.root / "var/lib/eva").unlink()
        with (
            plain_name(self.root) as (root, descriptor),
            (self.root / "var/log/cloud-init-output.log").open("ab") as log,
        ):
            self._boot = subprocess.Popen(
                ["bash", "-c", within(self._script, root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(descriptor,),
                env=environment(self._bin, self.root, GPUS=str(self._gpus), **self._credentials()),
                start_new_session=True,
            )

    def plug(self, volumes: Mapping[str, Path]) -> None:
        """Have it see the disks that are attached now: by id, the file that stands for each."""
        self._volumes = volumes
        for name, disk in volumes.items():
            by_id = f"nvme-Amazon_Elastic_Block_Store_{name.replace('-', '')}"
            link = self.root / "dev/disk/by-id" / by_id
            if not link.is_symlink():
                link.symlink_to(disk)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile its units write nothing, so that its disks can be copied as of one moment."""
        processes = [unit for _, unit in self._units.values() if unit.poll() is None]
        for process in processes:
            os.killpg(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGCONT)

    def look(self) -> None:
        """Start units that were enabled, and restart those that have ended."""
        for file in (self.root / UNITS).glob("*"):
            name, wanted = file.name, file.read_text()
            if name not in (MASTER, WORKER) or not wanted:
                continue
            version, process = self._units.get(name, ("", None))
            if process is not None and version != wanted:
                _end(process)
            elif process is not None and process.poll() is None:
                continue
            self._units[name] = wanted, self._start(name)

    def stop(self) -> None:
        """Switch it off, as EC2 does: units first, then everything."""
        for _, process in self._units.values():
            _end(process)
        self._units.clear()
        if self._boot is not None:
            _kill(self._boot)
        for process in self._left():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def lose(self) -> None:
        """Take it away without a warning."""
        for _, process in self._units.values():
            _kill(process)
        self.stop()

    def close(self) -> None:
        """Switch it off for good."""
        self.lose()
        self.metadata.stop()

    def _left(self) -> list[psutil.Process]:
        mark = str(self.home)
        return [process for process in psutil.process_iter() if _bears(process, mark)]

    def _credentials(self) -> dict[str, str]:
        """Variables with which all clients ask this machine's metadata service."""
        return {
            "AWS_ENDPOINT_URL": self._endpoint,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata.url,
            "AWS_METADATA_ENDPOINT": self.metadata.url,
            "AWS_CONFIG_FILE": str(self.home / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.home / "none"),
            "AWS_MAX_ATTEMPTS": "3",
            "HOME": str(self.home),
        }

    def _start(self, unit: str) -> subprocess.Popen[bytes]:
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EVA_", "AWS_"))
        }
        variables |= {**_unit_environment(unit), **self._credentials()}
        command = self._master(variables) if unit == MASTER else self._worker(variables)
        with (self.root / f"var/log/{unit.removeprefix('eva-')}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=variables,
                start_new_session=True,
            )

    def _master(self, variables: dict[str, str]) -> list[str]:
        settings = self.root / "etc/eva/master.yaml"
        (stated,) = [
            line.partition(": ")[2].strip()
            for line in settings.read_text().splitlines()
            if line.startswith("objects: ")
        ]
        variables |= {
            "EVA_MASTER_ADVERTISE": self._address,
            "EVA_MASTER_WORKER_LISTEN": f"{self._address}:7412",
            "EVA_MASTER_OBJECTS": f"{stated}&endpoint={self._endpoint}",
            "EVA_MASTER_EC2__ENDPOINT": self._endpoint,
        }
        return [
            *(sys.executable, "-m", "eva_client.cli", "master", "--config", str(settings)),
            *("--state-dir", str(self.root / "var/lib/eva")),
            *("--listen", f"{self._address}:7411"),
            *("--metrics-port", str(free_port())),
        ]

    def _worker(self, variables: dict[str, str]) -> list[str]:
        for pair in shlex.split((self.root / "etc/eva/worker.env").read_text()):
            name, _, value = pair.partition("=")
            variables[name] = value
        state = self.root / "var/lib/eva"
        variables |= {
            "EVA_WORKER_RUNTIME": "process",
            "EVA_WORKER_EMULATED": "true",
            "EVA_WORKER_STATE_DIR": str(state / "worker"),
            "EVA_WORKER_BOOT_FILE": str(state / "boot"),
            "EVA_WORKER_CA_FILE": str(self.root / "etc/eva/ca.pem"),
            "EVA_WORKER_POWER_OFF": f"touch {shlex.quote(str(self.root / OFF))}",
            "EVA_WORKER_METADATA_URL": self.metadata.url,
        }
        for name in ("EVA_WORKER_DOCKER_IMAGE", "EVA_WORKER_TASK_NETWORK"):
            variables.pop(name, None)
        return [sys.executable, "-P", "-m", "eva_worker"]


def _unit_environment(unit: str) -> dict[str, str]:
    parser = RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read(SYSTEMD / f"{unit}.service")
    stated = shlex.split(parser["Service"].get("Environment", ""))
    return dict(pair.split("=", 1) for pair in stated)


def _bears(process: psutil.Process, mark: str) -> bool:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        texts = [*process.cmdline(), *process.environ().values()]
    except psutil.Error:
        return False
    return any(mark in text for text in texts)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
    _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
