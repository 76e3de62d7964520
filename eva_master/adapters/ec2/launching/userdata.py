"""The user data that makes an instance a worker when it boots for the first time.

The user data is a shell script for cloud-init: variables first, then `userdata.sh` unchanged. No
value is inserted into code, so none can be run as code.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from eva_master.adapters.bootstrap import Bootstrap, environment_file
from eva_master.adapters.ec2.memory import RESERVED_MIB
from eva_master.model.actions import LaunchInstance
from eva_wire.values.errors import CloudError, InvalidConfig

MOST_BYTES = 16 * 1024
"""EC2's limit on the size of user data."""
PYTHON = "python3.11"

_STATE_DIR = "/var/lib/eva"
_BOOT_FILE = f"{_STATE_DIR}/boot"
_DIGEST = "#sha256="


@dataclass(frozen=True, slots=True)
class Boot:
    """Boot settings that all instances of a cluster share.

    Attributes:
        region: Region of the instances and the bucket.
        bundles: By architecture, ``s3://BUCKET/KEY#sha256=DIGEST`` of the worker's bundle; empty
            for images that have the worker at ``/opt/eva``, and its unit.
        boot_logs: ``s3://BUCKET/PREFIX`` to which the log of a failed boot is uploaded; empty for
            none.
        s3_endpoint: URL of S3, empty for AWS's own.
        mount_command: Shell command that mounts `storage_mount`; empty for none.
        boot_limit_min: Minutes after which an instance that has not become a worker switches itself
            off.
        worker_env: Variables for the worker: its options that are alike everywhere, and others such
            as ``AWS_ENDPOINT_URL``.
    """

    region: str
    bundles: Mapping[str, str] = field(default_factory=dict)
    boot_logs: str = ""
    s3_endpoint: str = ""
    mount_command: str = ""
    boot_limit_min: int = 30
    worker_env: Mapping[str, str] = field(default_factory=dict)

    def bundle(self, architecture: str) -> tuple[str, str]:
        """URL and digest of the bundle for an architecture; both empty if none is needed.

        Raises:
            CloudError: There are bundles, but none for this architecture.
        """
        if not self.bundles:
            return "", ""
        if architecture not in self.bundles:
            raise CloudError(
                f"no bundle for {architecture}",
                hint=f"make one (deploy.bundle) and name it in ec2.bundles.{architecture}",
            )
        place, _, digest = self.bundles[architecture].partition(_DIGEST)
        return place, digest


def user_data(boot: Boot, bootstrap: Bootstrap, launch: LaunchInstance) -> str:
    """The user data of a launch, which depends only on the arguments.

    Args:
        boot: The boot settings.
        bootstrap: How a worker finds and trusts the master.
        launch: The launch.

    Raises:
        InvalidConfig: The user data is larger than EC2 accepts.
        CloudError: There is no bundle for the architecture.
        StorageError: No join token can be issued now.
    """
    bundle, digest = boot.bundle(launch.offering.type.architecture)
    variables = {
        "instance": launch.instance,
        "gpus": str(launch.offering.type.capacity.gpus),
        "disk_mib": str(launch.offering.type.capacity.disk_mib),
        "python": PYTHON,
        "region": boot.region,
        "s3_endpoint": boot.s3_endpoint,
        "bundle": bundle,
        "bundle_sha256": digest,
        "boot_logs": boot.boot_logs.rstrip("/"),
        "boot_limit_min": str(boot.boot_limit_min),
        "mount_command": boot.mount_command,
        "authorities": bootstrap.authorities.strip(),
        "worker_env": environment_file(_worker_env(boot, bootstrap, launch)),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    text = "\n".join(["#!/bin/bash", *lines, _script()])
    size = len(text.encode())
    if size > MOST_BYTES:
        raise InvalidConfig(
            f"user data of {size} bytes, and EC2 takes {MOST_BYTES}",
            hint="shorten ec2.mount_command, or remove certificates from ca.pem that are over",
        )
    return text


def _worker_env(boot: Boot, bootstrap: Bootstrap, launch: LaunchInstance) -> dict[str, str]:
    """The environment of ``eva worker``, each option as a variable."""
    offering = launch.offering
    capacity = offering.type.capacity
    options = {
        "MASTER": bootstrap.workers,
        "ENROL": bootstrap.join,
        "INSTANCE_ID": launch.instance,
        "INSTANCE_TYPE": offering.type.name,
        "GPUS": str(capacity.gpus),
        "CPUS": f"{capacity.milli_cpus / 1000:g}",
        "MEMORY_MIB": str(capacity.memory_mib),
        "MEMORY_RESERVED_MIB": str(RESERVED_MIB),
        "STATE_DIR": f"{_STATE_DIR}/worker",
        "RUNTIME": "docker",
        "BOOT_FILE": _BOOT_FILE,
        "POWER_OFF": "systemctl poweroff",
        "CA_FILE": "/etc/eva/ca.pem",
        "TOKEN": bootstrap.token(launch.instance, launch.attempt),
    }
    ours = {f"EVA_WORKER_{name}": value for name, value in options.items()}
    return {"AWS_REGION": boot.region, **bootstrap.isolation, **boot.worker_env, **ours}


@cache
def _script() -> str:
    return files(__package__).joinpath("userdata.sh").read_text(encoding="utf-8")
