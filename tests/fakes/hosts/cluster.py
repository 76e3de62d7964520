"""A whole cluster for a test whose instances are test hosts; see `tests.e2e.cluster`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import psutil

from eva_master.adapters.local.cloud import MIB
from tests.e2e.cluster import Cluster, arguments
from tests.fakes.aws.service import CREDENTIALS, Aws
from tests.fakes.hosts import image
from tests.fakes.hosts.engine import SOCKET
from tests.fakes.hosts.machine import MODULE as MACHINE
from tests.fakes.hosts.machine import machine_command
from tests.fakes.hosts.master import MODULE
from tests.fakes.hosts.site import VARIABLE, Site

_RATE = 64 * MIB


class HostCluster(Cluster):
    """A cluster of a master and hosts that are apart, from `start` to `close`.

    Every instance is a machine with its own network, processes, mounts, disk and Docker engine, in
    which its tasks run; the master is on the same network. Faults of an instance:

    - `machine`, `init`, `engine`, `supervisor`, `agent` and `container` are its processes, to be
      killed, suspended and resumed;
    - `freeze` and `thaw` all of it, `cut` and `mend` its cable, `fill` its disk.

    Args:
        settings: The master's, beyond those of `Cluster`.
        catalog: Offerings on sale; see `Cluster`.
        command: See `Cluster`.
        read_rate: Bytes per second that programs on one instance may read together.
        disk_mib: Size of the disk of each instance, without images and containers; such a disk
            is lost when the instance crashes. 0 for no limit.
        live_restore: Whether containers outlive the Docker engine.
        objects_in_s3: Keep files in S3, which only who is on the network can reach, rather than
            in a directory of this machine.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        catalog: Mapping[str, Any] | None = None,
        command: str = "up",
        read_rate: int = _RATE,
        disk_mib: int = 0,
        live_restore: bool = True,
        objects_in_s3: bool = False,
    ) -> None:
        self._image = image.prepared()
        self.site = Site()
        self._read_rate = read_rate
        self._disk_mib = disk_mib
        self._live_restore = live_restore
        self.s3 = Aws(self.site.switch.address) if objects_in_s3 else None
        objects = {"objects": self.s3.make_bucket()} if self.s3 else {}
        super().__init__(
            self.site.path,
            settings={**objects, **(settings or {})},
            catalog=catalog,
            command=command,
            host=self.site.switch.address,
        )

    def environment(self) -> dict[str, str]:
        """See `Cluster.environment`."""
        credentials = {name.upper(): value for name, value in CREDENTIALS.items()}
        return {**super().environment(), **credentials, VARIABLE: str(self.site.path)}

    def master_command(self) -> list[str]:
        """See `Cluster.master_command`."""
        machine = machine_command(
            self.site,
            self._image,
            read_rate=self._read_rate,
            disk_mib=self._disk_mib,
            live_restore=self._live_restore,
        )
        return [
            *(sys.executable, "-m", MODULE, *self.master_options()),
            *(["--leave-on"] if self.command == "master" else []),
            *("--", *machine),
        ]

    def job_file(self, name: str, **keys: Any) -> str:
        """See `Cluster.job_file`; the program runs in the hosts' image."""
        return super().job_file(name, **{"run": "exec python3 counter.py", **keys})

    def close(self) -> None:
        """See `Cluster.close`; ends the network and removes all files as well."""
        try:
            super().close()
        finally:
            if self.s3:
                self.s3.stop()
            self.site.close()

    def processes(self) -> list[psutil.Process]:
        """See `Cluster.processes`; what runs in containers is not among them."""
        return self.site.processes()

    def leftovers(self) -> list[str]:
        """Processes of instances that are gone, in containers and outside of them."""
        records = self.records()
        gone = {name for name, record in records.items() if record.gone_ms is not None}
        return [
            *(str(it) for name in gone for it in self.processes_of(name)),
            *(f"{pid} in {group}" for group, pid in self.site.contained(records.keys() - gone)),
        ]

    # -- what an instance is made of -----------------------------------------------------------

    def master(self) -> psutil.Process:
        """The master, without the process that plans for it."""
        (master,) = (it for it in self.processes() if MODULE in arguments(it))
        return master

    def machine(self, instance: str) -> psutil.Process:
        """The process below which everything of an instance is: to kill it is a power cut."""
        pid = self.records()[instance].pid
        assert pid is not None
        return psutil.Process(pid)

    def init(self, instance: str) -> psutil.Process:
        """The first process in the instance's namespaces; to kill it is a crash and a reboot."""
        return self._only(instance, "--init", without="unshare")

    def has_booted(self, instance: str) -> bool:
        """Whether an instance's worker runs."""
        return bool(self.processes_of(instance, "eva_worker.agent"))

    def supervisor(self, instance: str) -> psutil.Process:
        """The worker's first process."""
        return self._only(instance, "eva_worker", without=MACHINE)

    def agent(self, instance: str) -> psutil.Process:
        """The worker's agent."""
        return self._only(instance, "eva_worker.agent", without=MACHINE)

    def engine(self, instance: str) -> psutil.Process:
        """The Docker engine."""
        return self._only(instance, "dockerd", without=MACHINE)

    def container(self, task: str) -> psutil.Process:
        """The program of a task, or the shell that it runs in.

        Args:
            task: Name of a task, such as ``job-1/0``.
        """
        job, _, index = task.partition("/")
        instance = self.task(job, int(index)).instance
        with self.docker(instance) as client:
            (found,) = client.containers.list(filters={"label": f"eva.copy={task}"})
            first = client.api.inspect_container(found.id)["State"]["Pid"]
        # The engine counts in the machine's namespace of processes.
        (init,) = (it for it in self.everything(instance) if _inner_pid(it) == first)
        (parent,) = init.children()
        (program,) = parent.children()
        return program

    def everything(self, instance: str) -> list[psutil.Process]:
        """All processes of an instance but the machine itself, those in containers too."""
        return self.machine(instance).children(recursive=True)

    def freeze(self, instance: str) -> None:
        """Have a machine hang: nothing on it runs, and its connections stay open."""
        stopped: set[int] = set()
        while new := [it for it in self.everything(instance) if it.pid not in stopped]:
            for process in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.suspend()
                stopped.add(process.pid)

    def thaw(self, instance: str) -> None:
        """Undo `freeze`."""
        for process in self.everything(instance):
            process.resume()

    def cut(self, instance: str) -> None:
        """Cut an instance off; ``master`` names the master."""
        self.site.switch.cut(instance)

    def mend(self, instance: str) -> None:
        """Undo `cut`."""
        self.site.switch.mend(instance)

    @contextlib.contextmanager
    def docker(self, instance: str) -> Iterator[Any]:
        """A `docker.DockerClient` of an instance's engine."""
        client: Any = docker.DockerClient(base_url=f"unix://{self.inside(instance, SOCKET)}")
        try:
            yield client
        finally:
            client.close()

    def fill(self, instance: str) -> Path:
        """Fill the disk of an instance to the last byte; returns the file that does, to remove."""
        assert self._disk_mib, "a cluster whose disks have no limit"
        filler = self.inside(instance, self.disk(instance) / "filler")
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(MIB)):
                pass
        return filler

    def disk(self, instance: str) -> Path:
        """Where the worker of an instance keeps its files."""
        return self.state_dir / "cloud" / instance / "disk"

    def inside(self, instance: str, path: Path) -> Path:
        """A path as it is among the mounts of an instance, for this process."""
        return Path(f"/proc/{self.init(instance).pid}/root{path}")

    def _only(self, instance: str, argument: str, *, without: str) -> psutil.Process:
        """The one process of an instance that has an argument, and not another one."""
        found = self.processes_of(instance, argument)
        (only,) = (it for it in found if without not in arguments(it))
        return only


def _inner_pid(process: psutil.Process) -> int:
    """A process's pid as its machine counts, 0 if it is on none."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        status = Path(f"/proc/{process.pid}/status").read_text()
        (pids,) = (line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
        # As this process counts, as the machine does, and as the container does.
        return int(pids[1]) if len(pids) > 1 else 0
    return 0
