"""Tasks as containers of a Docker engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from eva_worker.errors import Unprotected
from eva_worker.runtime import Runtime
from eva_worker.runtime.registry import RuntimeProvider

if TYPE_CHECKING:
    from eva_worker.settings import Settings


class _Docker(RuntimeProvider):
    """See `RuntimeProvider`."""

    name = "docker"
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "--docker-image": {"metavar": "IMAGE", "help": "Image for tasks that name none."},
        "--docker-host": {
            "metavar": "URL",
            "help": "The Docker engine, such as unix:///run/docker.sock; default as for docker "
            "itself.",
        },
    }

    def base_env(self) -> Mapping[str, str]:
        # A container has its image's environment, not the machine's.
        return {}

    def check(self, settings: Settings) -> None:
        from eva_worker.runtime.docker.runtime import connect

        connect(settings.runtime_options.get("docker_host", "")).close()

    def fence(self, settings: Settings, root: Path) -> bool:
        from eva_worker.runtime.docker.fence import kill_all

        host = settings.runtime_options.get("docker_host", "")
        return kill_all(host, root, instance=settings.instance)

    def protect(self, settings: Settings) -> None:
        if not settings.emulated:  # An emulated instance is a machine that is not Eva's.
            _close_addresses(settings)

    def open(self, settings: Settings, root: Path) -> Runtime:
        from eva_worker.runtime.docker.runtime import DockerRuntime, connect

        return DockerRuntime(
            root,
            connect(settings.runtime_options.get("docker_host", "")),
            instance=settings.instance,
            default_image=settings.runtime_options.get("docker_image", ""),
            real_gpus=not settings.emulated,
            isolation=settings.isolation,
        )


def _close_addresses(settings: Settings) -> None:
    """Close the metadata service and the agent's ports to tasks.

    An instance of a cloud has a role, which its metadata service hands to whoever asks. There no
    task may run with the service open. Other machines have no such service, and only say that the
    agent's ports are open; so does an instance whose operator has tasks run as root.

    Raises:
        Unprotected: The metadata service cannot be closed.
    """
    import structlog

    from eva_worker.runtime.docker import firewall

    log = structlog.get_logger()
    ports = [] if settings.metrics_port is None else [settings.metrics_port]
    try:
        if os.geteuid() != 0:
            raise firewall.NotClosed("the worker is not root")
        program = firewall.close(ports)
    except firewall.NotClosed as error:
        if settings.metadata_url:
            raise Unprotected(
                "tasks would reach the metadata service, and so the instance's role; "
                f"boot an image that has nft or iptables, with the worker as root: {error}"
            ) from error
        reason = str(error)
    else:
        if settings.isolation.user != "worker":
            log.info("metadata service closed to tasks", by=program)
            return
        reason = "tasks run as the worker's user, as the operator decided"
    log.error(
        "TASKS ON THIS MACHINE'S NETWORK REACH THE METADATA SERVICE AND THE AGENT'S PORTS",
        reason=reason,
        hint="run the worker as root where there is nft or iptables, and tasks as nobody",
    )


RUNTIME = _Docker()
