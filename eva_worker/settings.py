"""The settings that a worker is started with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from eva_worker.isolation import Isolation

ENVIRONMENT = "EVA_WORKER_SETTINGS"
SUPERVISOR = "EVA_WORKER_SUPERVISOR"
"""Environment variable of an agent: the process id of its supervisor."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one worker.

    Attributes:
        master: ``HOST:PORT`` of the master's port for workers.
        instance: The instance's id in the cluster.
        instance_type: Type of the instance, such as ``p3.2xlarge``.
        gpus: GPUs that tasks may use.
        milli_cpus: Thousandths of a vCPU that tasks may use.
        memory_mib: Mebibytes that tasks may use.
        memory_reserved_mib: Mebibytes of what the kernel counts that are not for tasks; 0 for
            `memory_mib` as it is.
        state_dir: Directory of everything that must survive the agent.
        emulated: Whether the instance's hardware is emulated.
        task_env: Variables for every task.
        runtime: Runtime of the tasks, see `eva_worker.runtime.registry`.
        runtime_options: The runtime's own options by name, such as ``docker_host``.
        address: Address at which other instances reach this one; empty for that of the route to the
            master.
        join: ``HOST:PORT`` that issues the first certificate; empty if there already is one.
        token: Proves to the master, once, that this worker may be that instance.
        authorities: PEM certificates that the master is verified with at first.
        log_kept_mib: MiB of each task's log that stay on the disk once they are stored.
        metrics_port: Port of the Prometheus endpoint, `None` for no endpoint.
        boot_file: File that says how long the instance took to boot; `None` for none.
        abandoned_after_s: A worker that reaches no master for so many seconds leaves; 0 for never.
        power_off: Shell command that ends the instance after the worker has left by itself; empty
            for none.
        storage_mount: A directory that all instances of the cluster share; `None` for none.
        isolation: Isolation of tasks.
        metadata_url: URL of the service that announces interruptions; empty for none.
        owned: Whether this is an owned node, whose tasks run under a lease.
    """

    master: str
    instance: str
    instance_type: str
    gpus: int
    milli_cpus: int
    memory_mib: int
    state_dir: Path
    emulated: bool = False
    task_env: Mapping[str, str] = field(default_factory=dict)
    metrics_port: int | None = None
    log_kept_mib: int = 64
    address: str = ""
    runtime: str = "process"
    runtime_options: Mapping[str, str] = field(default_factory=dict)
    join: str = ""
    token: str = field(default="", repr=False)
    authorities: str = field(default="", repr=False)
    boot_file: Path | None = None
    abandoned_after_s: int = 0
    power_off: str = ""
    metadata_url: str = ""
    storage_mount: Path | None = None
    memory_reserved_mib: int = 0
    isolation: Isolation = field(default_factory=Isolation)
    hidden: tuple[Path, ...] = ()
    owned: bool = False

    @property
    def contact_file(self) -> Path:
        """File that the agent touches while it has a session; the supervisor watches it."""
        return self.state_dir / "contact"

    @property
    def lease_file(self) -> Path:
        """File of an owned node's lease, which the agent writes and others watch."""
        return self.state_dir / "lease"

    def to_json(self) -> str:
        """Convert it to JSON for the agent's environment, which hides the token from others."""
        return json.dumps(asdict(self), default=str)  # Paths are the only other values.

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Restore settings from the JSON of `to_json`."""
        document = json.loads(text)
        named = {name: document[name] for name in ("state_dir", "boot_file", "storage_mount")}
        paths = {name: path and Path(path) for name, path in named.items()}
        isolation = Isolation(**document["isolation"])
        hidden = tuple(map(Path, document["hidden"]))
        return cls(**document | paths | {"isolation": isolation, "hidden": hidden})
